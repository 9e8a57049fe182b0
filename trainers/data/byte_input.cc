#include "belfry/trainers/data/byte_input.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <zlib.h>

#include "belfry/framework/base/activity.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// Deflate's limit: 258 bytes from a two-bit match.
constexpr std::uint64_t kGzipLimit = 1032;
constexpr std::size_t kFileBlock = 64 << 10;

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
}

class PlainInput final : public ByteInput {
 public:
  explicit PlainInput(FileBlocks& blocks) : blocks_(blocks) {}

  std::size_t read(std::span<std::byte> out) override { return blocks_.read(out); }
  std::uint64_t most_bytes() const override { return blocks_.size(); }
  std::string too_small() const override { return cat("truncated at byte ", blocks_.size()); }
  const char* of_what() const override { return ""; }

 private:
  FileBlocks& blocks_;
};

class GzipInput final : public ByteInput {
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
    while (done < out.size() && has_more()) {
      const uInt room = part(out.size() - done);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      stream_.avail_out = room;
      check(inflate_some());
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

  int inflate_some() {
    const std::span<const std::byte> fed = blocks_.peek(1);
    // zlib does not write to its input; its type is not const for old compilers' sake.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(fed.data()));
    stream_.avail_in = static_cast<uInt>(fed.size());
    const int code = inflate(&stream_, Z_NO_FLUSH);
    blocks_.take(fed.size() - stream_.avail_in);
    return code;
  }

  void check(int code) {
    if (code == Z_BUF_ERROR && blocks_.peek(1).empty())
      damaged("truncated at", ": expected more gzip data, found the end");
    if (code != Z_OK && code != Z_BUF_ERROR && code != Z_STREAM_END)
      damaged("corrupt at",
              cat(": expected gzip data, found: ", stream_.msg ? stream_.msg : "nonsense"));
    between_members_ = code == Z_STREAM_END;
  }

  // Whether another member follows, as in `cat a.gz b.gz`. It is looked at only when its bytes are
  // wanted: whatever it is, the members before it are whole.
  bool has_more() {
    if (!between_members_) return true;
    const std::span<const std::byte> next = blocks_.peek(2);
    if (next.empty()) return false;
    if (!is_gzip(next))
      damaged("trailing bytes from",
              cat(": expected the end of the file, or more gzip data, found ",
                  blocks_.size() - blocks_.position(), " more"));
    inflateReset(&stream_);
    between_members_ = false;
    return true;
  }

  [[noreturn]] void damaged(std::string_view what, std::string_view why) const {
    throw IoError(cat(name_, ": ", what, " byte ", blocks_.position(), why));
  }

  FileBlocks& blocks_;
  const std::string& name_;
  z_stream stream_ = {};
  bool between_members_ = false;
};

}  // namespace

FileBlocks::FileBlocks(ReadableFile& file) : file_(file), block_(kFileBlock) {}

std::span<const std::byte> FileBlocks::peek(std::size_t least) {
  if (rest_.size() < least) {
    std::ranges::copy(rest_, block_.begin());
    const std::size_t more = file_.read(std::span(block_).subspan(rest_.size()));
    note_progress();
    rest_ = std::span(block_).first(rest_.size() + more);
  }
  return rest_;
}

void FileBlocks::take(std::size_t count) {
  rest_ = rest_.subspan(count);
  position_ += count;
}

std::size_t FileBlocks::read(std::span<std::byte> out) {
  const std::size_t known = std::min(out.size(), rest_.size());
  std::ranges::copy(rest_.first(known), out.begin());
  take(known);
  const std::size_t more = known < out.size() ? file_.read(out.subspan(known)) : 0;
  position_ += more;
  return known + more;
}

std::unique_ptr<ByteInput> open_input(FileBlocks& blocks, const std::string& name) {
  if (is_gzip(blocks.peek(2))) return std::make_unique<GzipInput>(blocks, name);
  return std::make_unique<PlainInput>(blocks);
}

void BytesFile::seek(std::uint64_t offset) {
  used_ = static_cast<std::size_t>(std::min<std::uint64_t>(offset, bytes_.size()));
}

std::size_t BytesFile::read(std::span<std::byte> out) {
  const std::size_t count = std::min(out.size(), bytes_.size() - used_);
  std::ranges::copy(bytes_.subspan(used_, count), out.begin());
  used_ += count;
  return count;
}

}  // namespace belfry
