#include "belfry/trainers/data/npy_array.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <zlib.h>

#include "belfry/framework/base/crc32.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/bad_records.h"
#include "belfry/trainers/data/byte_input.h"

namespace belfry {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are read as they are");

constexpr std::uint64_t kMostNpyHeader = 64 << 10;
constexpr std::size_t kMostNpyRank = 8;

std::string bytes_at(ReadableFile& file, std::uint64_t begin, std::uint64_t size) {
  std::string text(size, '\0');
  file.seek(begin);
  text.resize(file.read(std::as_writable_bytes(std::span(text))));
  return text;
}

// The little-endian number of `size` bytes at `at`; the text has them.
std::uint64_t number_at(std::string_view text, std::size_t at, std::size_t size) {
  std::uint64_t number = 0;
  std::memcpy(&number, text.data() + at, size);
  return number;
}

// The part of a Python dictionary that follows 'key':, without spaces in front.
std::optional<std::string_view> value_after(std::string_view dictionary, const std::string& key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + key + quote;
    std::size_t at = dictionary.find(quoted);
    if (at == dictionary.npos) continue;
    at = dictionary.find_first_not_of(" :", at + quoted.size());
    if (at != dictionary.npos) return dictionary.substr(at);
  }
  return {};
}

std::optional<DType> numpy_dtype(std::string_view written) {
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"<f2", DType::kF16}, {"<f4", DType::kF32}, {"<f8", DType::kF64}, {"<i4", DType::kI32},
      {"<i8", DType::kI64}, {"|u1", DType::kU8},  {"|b1", DType::kBool}};
  for (const auto& [name, dtype] : kTypes)
    if (written.substr(1).starts_with(name)) return dtype;  // after a quote
  return {};
}

// "(3, 4)", "(3,)" or "()".
std::optional<Shape> shape_in(std::string_view written) {
  std::vector<std::int64_t> dims;
  if (!written.starts_with('(')) return {};
  written.remove_prefix(1);
  for (;;) {
    written.remove_prefix(std::min(written.find_first_not_of(" ,"), written.size()));
    if (written.starts_with(')')) return Shape(std::move(dims));
    std::int64_t dim = 0;
    const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), dim);
    if (error != std::errc() || dim < 0 || dims.size() == kMostNpyRank) return {};
    dims.push_back(dim);
    written.remove_prefix(static_cast<std::size_t>(end - written.data()));
  }
}

// Bytes of an array; none if there are more than `most`.
std::optional<std::uint64_t> bytes_of_array(const NpyHeader& header, std::uint64_t most) {
  std::uint64_t bytes = size_of(header.dtype);
  for (std::size_t axis = 0; axis < header.shape.rank(); ++axis) {
    const auto dim = static_cast<std::uint64_t>(header.shape[axis]);
    if (dim != 0 && bytes > most / dim) return {};
    bytes *= dim;
  }
  return bytes;
}

// A value of the header without what follows it.
std::string_view value_alone(std::string_view written) {
  std::size_t end = written.find(", }");
  for (const char* const next : {", 'descr'", ", 'fortran_order'", ", 'shape'"})
    end = std::min(end, written.find(next));
  return written.substr(0, end);
}

template <class... Parts>
[[noreturn]] void refuse_array(const Parts&... parts) {
  throw IoError(about_option("data_dir", parts...,
                             "; save the array anew, or name another folder (",
                             the_option("data_dir"), ")"));
}

// Where a zip archive lists its members.
struct ZipDirectory {
  std::uint64_t begin = 0, size = 0;
};

constexpr std::uint64_t kIn64Bits = 0xFFFFFFFF;  // of a field whose number is elsewhere

ZipDirectory find_directory(ReadableFile& file, const std::string& name) {
  constexpr std::uint64_t kEnd = 22, kLongestComment = 0xFFFF, kLocator = 20, kEnd64 = 56;
  const std::uint64_t tail = std::min(file.size(), kEnd + kLongestComment + kLocator);
  const std::string text = bytes_at(file, file.size() - tail, tail);
  const std::size_t at = text.rfind("PK\5\6");
  if (at == text.npos || text.size() - at < kEnd)
    refuse_array(name, ": no zip archive, or one that is cut off");
  ZipDirectory found{number_at(text, at + 16, 4), number_at(text, at + 12, 4)};
  if (found.begin == kIn64Bits || found.size == kIn64Bits) {
    const bool has_locator = at >= kLocator && text.substr(at - kLocator, 4) == "PK\6\7";
    const std::uint64_t place = has_locator ? number_at(text, at - kLocator + 8, 8) : 0;
    const std::string end64 = place < file.size() ? bytes_at(file, place, kEnd64) : std::string();
    if (end64.size() < kEnd64 || !end64.starts_with("PK\6\6"))
      refuse_array(name, ": its zip archive is damaged");
    found = {number_at(end64, 48, 8), number_at(end64, 40, 8)};
  }
  if (found.begin > file.size() || found.size > file.size() - found.begin ||
      found.size > kMostTextBytes)
    refuse_array(name, ": its zip archive is damaged");
  return found;
}

// Replaces those of `fields` that are kIn64Bits by the numbers of the extra field, in this order.
bool take_64_bits(std::string_view extra, std::initializer_list<std::uint64_t*> fields) {
  while (extra.size() >= 4) {
    const std::size_t size = number_at(extra, 2, 2);
    if (size > extra.size() - 4) return false;
    std::string_view content = extra.substr(4, size);
    if (number_at(extra, 0, 2) == 1)
      for (std::uint64_t* const field : fields) {
        if (*field != kIn64Bits) continue;
        if (content.size() < 8) return false;
        *field = number_at(content, 0, 8);
        content.remove_prefix(8);
      }
    extra.remove_prefix(4 + size);
  }
  return true;
}

}  // namespace

NpyHeader read_npy_header(ReadableFile& file, const std::string& name, std::uint64_t begin,
                          std::uint64_t end) {
  constexpr std::uint64_t kFirst = 12;  // magic, version, and the header's length
  const std::string first = bytes_at(file, begin, std::min(kFirst, end - begin));
  if (first.size() < kFirst || !first.starts_with("\x93NUMPY"))
    refuse_array(name, ": no array of NumPy");
  const bool is_first = first[6] == 1;  // whose lengths have two bytes
  const std::uint64_t text_at = begin + (is_first ? 10 : kFirst);
  const std::uint64_t length = number_at(first, 8, is_first ? 2 : 4);
  if (first[6] < 1 || first[6] > 3 || length > kMostNpyHeader || length > end - text_at)
    refuse_array(name, ": the header of its array is damaged");
  const std::string text = bytes_at(file, text_at, length);
  const auto type = value_after(text, "descr"), order = value_after(text, "fortran_order"),
             dims = value_after(text, "shape");
  if (text.size() < length || !type || !order || !dims)
    refuse_array(name, ": the header of its array is damaged: ", shown(text, 200));
  const auto dtype = numpy_dtype(*type);
  if (!dtype)
    refuse_array(name, ": its array has the type ", shown(value_alone(*type), 40),
                 ", where float16, float32, float64, int32, int64, uint8 and bool are read");
  if (!order->starts_with("False"))
    refuse_array(name, ": its array is in Fortran's order; numpy.ascontiguousarray changes that");
  auto shape = shape_in(*dims);
  if (!shape)
    refuse_array(name, ": its array has no shape that is read: ", shown(value_alone(*dims), 60));
  NpyHeader header{*dtype, *std::move(shape), text_at + length};
  if (!bytes_of_array(header, end - header.begin))
    refuse_array(name, ": truncated at byte ", end, ": expected an array of shape ", header.shape,
                 ", ", name_of(header.dtype), ", from byte ", header.begin);
  return header;
}

std::optional<ZipMember> find_zip_member(ReadableFile& file, const std::string& name,
                                         std::string_view member) {
  constexpr std::size_t kEntry = 46, kLocal = 30;
  constexpr std::uint64_t kStored = 0, kDeflated = 8;
  const ZipDirectory directory = find_directory(file, name);
  const std::string text = bytes_at(file, directory.begin, directory.size);
  const auto damaged = [&]() { refuse_array(name, ": its zip archive is damaged"); };
  for (std::string_view rest = text; !rest.empty();) {
    if (rest.size() < kEntry || !rest.starts_with("PK\1\2")) damaged();
    const std::size_t name_size = number_at(rest, 28, 2), extra_size = number_at(rest, 30, 2),
                      comment_size = number_at(rest, 32, 2);
    if (rest.size() - kEntry < name_size + extra_size + comment_size) damaged();
    const std::string_view entry = rest;
    rest.remove_prefix(kEntry + name_size + extra_size + comment_size);
    if (entry.substr(kEntry, name_size) != member) continue;
    ZipMember found{.packed = number_at(entry, 20, 4),
                    .unpacked = number_at(entry, 24, 4),
                    .sum = static_cast<std::uint32_t>(number_at(entry, 16, 4))};
    std::uint64_t local = number_at(entry, 42, 4);
    if (!take_64_bits(entry.substr(kEntry + name_size, extra_size),
                      {&found.unpacked, &found.packed, &local}))
      damaged();
    const std::uint64_t method = number_at(entry, 10, 2);
    if (method != kStored && method != kDeflated)
      refuse_array(name, ": ", shown(member), " is packed by method ", method,
                   " of zip, where only deflate is read");
    found.is_deflated = method == kDeflated;
    const std::string header = local < file.size() ? bytes_at(file, local, kLocal) : std::string();
    if (header.size() < kLocal || !header.starts_with("PK\3\4")) damaged();
    found.begin = local + kLocal + number_at(header, 26, 2) + number_at(header, 28, 2);
    if (found.begin > file.size() || found.packed > file.size() - found.begin ||
        (!found.is_deflated && found.packed != found.unpacked))
      damaged();
    return found;
  }
  return {};
}

// zlib checks no sum of raw data, so the archive's is checked here.
std::string unpack_member(ReadableFile& file, const std::string& name, const ZipMember& member,
                          std::uint64_t most) {
  constexpr std::uint64_t kMostPacking = 1032;  // deflate's limit
  const bool fits = member.unpacked / kMostPacking <= member.packed && member.unpacked <= most;
  if (!fits) refuse_array(name, ": its ", member.unpacked, " unpacked bytes do not fit in memory");
  std::string bytes;
  try {
    bytes.resize(member.unpacked);
  } catch (const std::bad_alloc&) {
    refuse_array(name, ": there is no memory left for its ", member.unpacked, " unpacked bytes");
  }
  file.seek(member.begin);
  FileBlocks blocks(file);
  z_stream stream = {};
  require<IoError>(inflateInit2(&stream, -MAX_WBITS) == Z_OK, name, ": zlib cannot start");
  struct End {
    z_stream& stream;
    ~End() { inflateEnd(&stream); }
  } const end{stream};
  std::uint64_t done = 0;
  for (int code = Z_OK; code != Z_STREAM_END;) {
    const std::span<const std::byte> fed = blocks.peek(1);
    const auto room = static_cast<uInt>(
        std::min<std::uint64_t>(bytes.size() - done, std::numeric_limits<uInt>::max()));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(fed.data()));
    stream.avail_in = static_cast<uInt>(fed.size());
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data()) + done;
    stream.avail_out = room;
    code = inflate(&stream, Z_NO_FLUSH);
    blocks.take(fed.size() - stream.avail_in);
    done += room - stream.avail_out;
    if (code != Z_OK && code != Z_STREAM_END)
      refuse_array(name, ": its packed data are damaged at byte ", member.begin + blocks.position(),
                   " of the file");
  }
  if (done < bytes.size()) refuse_array(name, ": its packed data end early");
  const std::uint32_t sum = crc32_of(std::as_bytes(std::span(bytes)));
  if (sum != member.sum)
    refuse_array(name, ": its packed data are damaged: expected the CRC 0x", hex(member.sum, 8),
                 ", found 0x", hex(sum, 8));
  return bytes;
}

NpyArray::NpyArray(FileSystem& files, std::string path, const std::string& array)
    : files_(files), path_(std::move(path)), name_(path_) {
  const auto file = files_.open(path_);
  if (path_.ends_with(".npz")) {
    name_ = cat(path_, ", array ", array);
    const auto member = find_zip_member(*file, path_, array + ".npy");
    if (!member)
      throw NotFoundError(about_option("data_dir", path_, " has no array ", array,
                                       "; save it by that name, or name another folder (",
                                       the_option("data_dir"), ")"));
    if (member->is_deflated)
      unpack(*file, *member);
    else
      header_ = read_npy_header(*file, name_, member->begin, member->begin + member->packed);
  } else {
    header_ = read_npy_header(*file, name_, 0, file->size());
  }
  if (header_.shape.rank() == 0 || header_.shape.elements() == 0)
    refuse_array(name_, ": has shape ", header_.shape, ", which has no samples");
}

void NpyArray::unpack(ReadableFile& file, const ZipMember& member) {
  const std::string bytes =
      unpack_member(file, name_, member, static_cast<std::uint64_t>(host_memory(files_)));
  BytesFile unpacked(std::as_bytes(std::span(bytes)));
  header_ = read_npy_header(unpacked, name_, 0, bytes.size());
  Tensor values(header_.shape, header_.dtype);
  std::memcpy(values.mutable_raw(), bytes.data() + header_.begin, values.bytes());
  unpacked_ = std::make_shared<const Tensor>(std::move(values));
  header_.begin = 0;
}

std::size_t NpyArray::row_bytes() const {
  return static_cast<std::size_t>(shape().elements() / rows()) * size_of(dtype());
}

std::uint64_t NpyArray::offset(std::int64_t row) const {
  return header_.begin + static_cast<std::uint64_t>(row) * row_bytes();
}

void NpyArray::read(std::int64_t row, std::span<std::byte> out) const {
  require(row >= 0 && row < rows() && out.size() == row_bytes(), name_, ": row ", row, " of ",
          rows(), ", into ", out.size(), " bytes");
  if (unpacked_) {
    std::memcpy(out.data(), unpacked_->raw() + offset(row), out.size());
    return;
  }
  const auto file = files_.open(path_);
  file->seek(offset(row));
  if (file->read(out) < out.size())
    throw BadRecord(name_, offset(row), "the file has become shorter");
}

NpyArray open_array(FileSystem& files, const std::string& folder, const std::string& stem,
                    const std::string& array) {
  const std::string together = cat(folder, "/", stem, ".npz");
  const std::string alone = cat(folder, "/", stem, "_", array, ".npy");
  for (const std::string& path : {together, alone})
    if (files.target_kind(path) != FileKind::kNone) return {files, path, array};
  throw NotFoundError(about_option("data_dir", "neither ", together, " nor ", alone,
                                   " is there; name the folder with the arrays (",
                                   the_option("data_dir"), ")"));
}

}  // namespace belfry
