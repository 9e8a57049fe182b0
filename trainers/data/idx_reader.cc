#include "belfry/trainers/data/idx_reader.h"

#include <algorithm>
#include <array>
#include <memory>
#include <new>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/byte_input.h"

namespace belfry {
namespace {

constexpr std::size_t kMaxRank = 8;

// The big-endian number at `offset`, which is where `input` stands.
std::uint32_t read_number(ByteInput& input, const std::string& name, std::size_t offset,
                          const std::string& what) {
  std::array<std::byte, 4> bytes;
  const std::size_t got = input.read(bytes);
  require<IoError>(got == bytes.size(), name, ": truncated at byte ", offset + got, input.of_what(),
                   ": expected ", what, " in bytes ", offset, " to ", offset + 3,
                   ", found the end");
  std::uint32_t value = 0;
  for (const std::byte byte : bytes) value = value << 8 | std::to_integer<std::uint32_t>(byte);
  return value;
}

// Reads magic and dimensions.
Shape read_header(ByteInput& input, const std::string& name, std::size_t rank) {
  const auto wanted = static_cast<std::uint32_t>(0x800 | rank);
  const std::uint32_t magic = read_number(input, name, 0, "the magic number");
  require<IoError>(magic == wanted, name, ": wrong magic number at byte 0", input.of_what(),
                   ": expected 0x", hex(wanted, 8), " (IDX, unsigned bytes, rank ", rank,
                   "), found 0x", hex(magic, 8));
  Shape shape(std::vector<std::int64_t>(rank, 0));
  for (std::size_t axis = 0; axis < rank; ++axis)
    shape[axis] = read_number(input, name, 4 + 4 * axis, cat("dimension ", axis));
  for (std::size_t axis = 1; axis < rank; ++axis)
    require<IoError>(shape[axis] > 0, name, ": bytes ", 4 + 4 * axis, " to ", 7 + 4 * axis,
                     input.of_what(), ": expected dimension ", axis, " above 0, found shape ",
                     shape);
  return shape;
}

// The number of values of a row, which has one index of dimension 0; above `most` it is most + 1.
std::uint64_t values_of_row(const Shape& shape, std::uint64_t most) {
  std::uint64_t values = 1;
  for (std::size_t axis = 1; axis < shape.rank(); ++axis) {
    const auto size = static_cast<std::uint64_t>(shape[axis]);
    if (values > most / size) return most + 1;
    values *= size;
  }
  return values;
}

// Reads the values that a file declares.
class ValueReader {
 public:
  ValueReader(ReadableFile& file, const std::string& name, std::size_t rank)
      : blocks_(file), name_(name), header_(4 + 4 * rank), input_(open_input(blocks_, name)) {
    require(rank >= 1 && rank <= kMaxRank, "IDX files have rank 1 to ", kMaxRank, ", not ", rank);
    declared_ = read_header(*input_, name, rank);
  }

  const Shape& declared() const { return declared_; }

  Tensor read(const std::function<void(const Shape&)>& check) {
    const std::uint64_t room = input_->most_bytes() - std::min(input_->most_bytes(), header_);
    const auto rows = static_cast<std::uint64_t>(declared_[0]);
    if (rows > room / values_of_row(declared_, room)) fail(input_->too_small(), expected(room));
    if (check) check(declared_);
    Tensor values = make();
    const std::uint64_t got = input_->read({values.mutable_raw(), values.bytes()});
    const std::string end = cat(" byte ", header_ + got, input_->of_what());
    if (got < values.bytes()) fail("truncated at", end, expected(got));
    std::byte extra;
    if (input_->read({&extra, 1}) > 0)  // makes zlib verify its checksum, too
      fail("trailing bytes from", end, ": expected the end after ", got, " values of shape ",
           declared_);
    return values;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw IoError(cat(name_, ": ", parts...));
  }

  Tensor make() const try {
    if (declared_.elements() > host_memory()) throw std::bad_alloc();
    return {declared_, DType::kU8};
  } catch (const std::bad_alloc&) {
    fail("its values of shape ", declared_, " need more memory than is left");
  }

  std::string expected(std::uint64_t found) const {
    return cat(": expected values of shape ", declared_, " from byte ", header_, input_->of_what(),
               ", found room for ", found);
  }

  FileBlocks blocks_;
  const std::string& name_;
  const std::uint64_t header_;  // bytes
  const std::unique_ptr<ByteInput> input_;
  Shape declared_;
};

// "-idx3-ubyte" <-> ".idx3-ubyte"; `path` itself where neither occurs.
std::string other_spelling(std::string path) {
  const std::size_t at = path.rfind("idx");
  if (at == std::string::npos || at == 0) return path;
  char& mark = path[at - 1];
  if (mark == '-' || mark == '.') mark = mark == '-' ? '.' : '-';
  return path;
}

}  // namespace

Tensor parse_idx(std::span<const std::byte> bytes, const std::string& name, std::size_t rank) {
  BytesFile file(bytes);
  return parse_idx(file, name, rank);
}

Tensor parse_idx(ReadableFile& file, const std::string& name, std::size_t rank,
                 const std::function<void(const Shape&)>& check) {
  return ValueReader(file, name, rank).read(check);
}

Shape parse_idx_shape(ReadableFile& file, const std::string& name, std::size_t rank) {
  return ValueReader(file, name, rank).declared();
}

std::string find_idx_file(FileSystem& files, const std::string& path) {
  const std::string stem = path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path;
  std::vector<std::string> tried = {path};
  for (const std::string& spelling : {stem, other_spelling(stem)})
    for (const char* suffix : {"", ".gz"})
      if (std::ranges::find(tried, spelling + suffix) == tried.end())
        tried.push_back(spelling + suffix);
  for (const std::string& candidate : tried)
    if (files.target_kind(candidate) != FileKind::kNone) return candidate;
  throw NotFoundError(cat("no such file: ", join(tried, " or ")));
}

}  // namespace belfry
