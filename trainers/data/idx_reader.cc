#include "belfry/trainers/data/idx_reader.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include <zlib.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// Deflate's limit: 258 bytes from a two-bit match.
constexpr std::uint64_t kGzipLimit = 1032;
constexpr std::size_t kMaxRank = 8;

// The unpacked bytes of a file, in order.
class Input {
 public:
  virtual ~Input() = default;
  // Fills `out` and returns how many bytes there were: fewer only at the end.
  virtual std::size_t read(std::span<std::byte> out) = 0;
  // A bound on the unpacked size of the whole.
  virtual std::uint64_t most_bytes() const = 0;
  // How a message about a file below its declared size begins.
  virtual std::string too_small() const = 0;
  // Follows a byte offset in messages.
  virtual const char* of_what() const = 0;
};

// Reads a file in blocks, so that its start can be looked at.
class FileBlocks {
 public:
  explicit FileBlocks(ReadableFile& file) : file_(file), block_(kBlock) {}

  std::uint64_t size() const { return file_.size(); }
  // How many bytes were taken.
  std::uint64_t position() const { return position_; }
  // The next bytes, not taken: `least` of them or more, fewer only at the end.
  std::span<const std::byte> peek(std::size_t least) {
    if (rest_.size() < least) {
      std::ranges::copy(rest_, block_.begin());
      const std::size_t more = file_.read(std::span(block_).subspan(rest_.size()));
      rest_ = std::span(block_).first(rest_.size() + more);
    }
    return rest_;
  }
  void take(std::size_t count) {
    rest_ = rest_.subspan(count);
    position_ += count;
  }
  std::size_t read(std::span<std::byte> out) {
    const std::size_t known = std::min(out.size(), rest_.size());
    std::ranges::copy(rest_.first(known), out.begin());
    take(known);
    const std::size_t more = known < out.size() ? file_.read(out.subspan(known)) : 0;
    position_ += more;
    return known + more;
  }

 private:
  static constexpr std::size_t kBlock = 64 << 10;
  ReadableFile& file_;
  std::vector<std::byte> block_;
  std::span<const std::byte> rest_;  // of the block
  std::uint64_t position_ = 0;
};

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
}

class PlainInput final : public Input {
 public:
  explicit PlainInput(FileBlocks& blocks) : blocks_(blocks) {}

  std::size_t read(std::span<std::byte> out) override { return blocks_.read(out); }
  std::uint64_t most_bytes() const override { return blocks_.size(); }
  std::string too_small() const override { return cat("truncated at byte ", blocks_.size()); }
  const char* of_what() const override { return ""; }

 private:
  FileBlocks& blocks_;
};

class GzipInput final : public Input {
 public:
  GzipInput(FileBlocks& blocks, const std::string& name) : blocks_(blocks), name_(name) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    require<IoError>(inflateInit2(&stream_, kGzipOnly) == Z_OK, name_, ": zlib cannot start");
  }
  ~GzipInput() override { inflateEnd(&stream_); }
  GzipInput(const GzipInput&) = delete;
  GzipInput& operator=(const GzipInput&) = delete;

  std::size_t read(std::span<std::byte> out) override {
    std::size_t done = 0;
    while (done < out.size() && !ended_) {
      const uInt room = part(out.size() - done);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      stream_.avail_out = room;
      inflate_some();
      done += room - stream_.avail_out;
    }
    return done;
  }
  std::uint64_t most_bytes() const override {
    return std::min(blocks_.size(), std::numeric_limits<std::uint64_t>::max() / kGzipLimit) *
           kGzipLimit;
  }
  std::string too_small() const override {
    return cat("truncated or corrupt, as deflate packs at most ", kGzipLimit, " to 1");
  }
  const char* of_what() const override { return " of the unpacked data"; }

 private:
  // zlib counts in 32 bits.
  static uInt part(std::size_t size) {
    return static_cast<uInt>(std::min<std::size_t>(size, std::numeric_limits<uInt>::max()));
  }

  void inflate_some() {
    const std::span<const std::byte> fed = blocks_.peek(1);
    // zlib does not write to its input; its type is not const for old compilers' sake.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(fed.data()));
    stream_.avail_in = static_cast<uInt>(fed.size());
    const int code = inflate(&stream_, Z_NO_FLUSH);
    blocks_.take(fed.size() - stream_.avail_in);
    require<IoError>(code != Z_BUF_ERROR || !fed.empty(), name_, ": truncated at byte ",
                     blocks_.position(), ": expected more gzip data, found the end");
    require<IoError>(code == Z_OK || code == Z_BUF_ERROR || code == Z_STREAM_END, name_,
                     ": corrupt at byte ", blocks_.position(),
                     ": expected gzip data, found: ", stream_.msg ? stream_.msg : "nonsense");
    if (code == Z_STREAM_END) end_member();
  }

  // Of `cat a.gz b.gz`, another one follows.
  void end_member() {
    const std::span<const std::byte> next = blocks_.peek(2);
    ended_ = next.empty();
    if (ended_) return;
    require<IoError>(is_gzip(next), name_, ": trailing bytes from byte ", blocks_.position(),
                     ": expected the end of the file, or more gzip data, found ",
                     blocks_.size() - blocks_.position(), " more");
    inflateReset(&stream_);
  }

  FileBlocks& blocks_;
  const std::string& name_;
  z_stream stream_ = {};
  bool ended_ = false;
};

std::unique_ptr<Input> open_input(FileBlocks& blocks, const std::string& name) {
  if (is_gzip(blocks.peek(2))) return std::make_unique<GzipInput>(blocks, name);
  return std::make_unique<PlainInput>(blocks);
}

class BytesFile final : public ReadableFile {
 public:
  explicit BytesFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  void seek(std::uint64_t offset) override {
    used_ = static_cast<std::size_t>(std::min<std::uint64_t>(offset, bytes_.size()));
  }
  std::size_t read(std::span<std::byte> out) override {
    const std::size_t count = std::min(out.size(), bytes_.size() - used_);
    std::ranges::copy(bytes_.subspan(used_, count), out.begin());
    used_ += count;
    return count;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t used_ = 0;
};

// The big-endian number at `offset`, which is where `input` stands.
std::uint32_t read_number(Input& input, const std::string& name, std::size_t offset,
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

// Reads magic and dimensions, and checks that the values can be in the file.
Shape read_header(Input& input, const std::string& name, std::size_t rank) {
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
  const std::uint64_t header = 4 + 4 * rank;
  const std::uint64_t room = input.most_bytes() - std::min(input.most_bytes(), header);
  std::uint64_t declared = 1;
  for (const std::int64_t dim : shape.dims()) {
    const auto size = static_cast<std::uint64_t>(dim);
    require<IoError>(size == 0 || declared <= room / size, name, ": ", input.too_small(),
                     ": expected values of shape ", shape, " from byte ", header, input.of_what(),
                     ", found room for ", room);
    declared *= size;
  }
  return shape;
}

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

Shape parse_idx_shape(ReadableFile& file, const std::string& name, std::size_t rank) {
  FileBlocks blocks(file);
  return read_header(*open_input(blocks, name), name, rank);
}

Tensor parse_idx(ReadableFile& file, const std::string& name, std::size_t rank,
                 const std::function<void(const Shape&)>& check) {
  require(rank >= 1 && rank <= kMaxRank, "IDX files have rank 1 to ", kMaxRank, ", not ", rank);
  FileBlocks blocks(file);
  const auto input = open_input(blocks, name);
  const Shape shape = read_header(*input, name, rank);
  if (check) check(shape);
  require<IoError>(shape.elements() <= host_memory(), name, ": its values of shape ", shape,
                   " need more memory than this machine has, ", byte_text(host_memory()));
  Tensor values(shape, DType::kU8);
  const std::size_t header = 4 + 4 * rank;
  const std::size_t got = input->read({values.mutable_raw(), values.bytes()});
  require<IoError>(got == values.bytes(), name, ": truncated at byte ", header + got,
                   input->of_what(), ": expected values of shape ", shape, " from byte ", header,
                   ", found room for ", got);
  // Reading on also makes zlib verify its checksum.
  std::byte extra;
  require<IoError>(input->read({&extra, 1}) == 0, name, ": trailing bytes from byte ", header + got,
                   input->of_what(), ": expected the end after ", got, " values of shape ", shape);
  return values;
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
  throw NotFound(cat("no such file: ", join(tried, " or ")));
}

Tensor read_idx_file(FileSystem& files, const std::string& path, std::size_t rank) {
  const std::string found = find_idx_file(files, path);
  return parse_idx(*files.open(found), found, rank);
}

}  // namespace belfry
