#include "belfry/trainers/data/gzip_points.h"

#include <algorithm>
#include <array>
#include <limits>

#include <zlib.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/bad_records.h"
#include "belfry/trainers/data/byte_input.h"

namespace belfry {
namespace {

constexpr std::size_t kWindow = std::size_t{1} << MAX_WBITS;
constexpr int kWithHeader = 16 + MAX_WBITS, kWithoutHeader = -MAX_WBITS;
constexpr std::size_t kSumAndLength = 8;  // after the data of a member

}  // namespace

// Unpacks the blocks of a file, one call of inflate() at a time.
class GzipUnpacker {
 public:
  // The file stands at byte `begin`.
  GzipUnpacker(ReadableFile& file, const std::string& name, int format, std::uint64_t begin = 0)
      : blocks_(file), name_(name), begin_(begin) {
    require<IoError>(inflateInit2(&stream_, format) == Z_OK, name_, ": zlib cannot start");
  }
  ~GzipUnpacker() { inflateEnd(&stream_); }
  GzipUnpacker(const GzipUnpacker&) = delete;
  GzipUnpacker& operator=(const GzipUnpacker&) = delete;

  z_stream& stream() { return stream_; }
  std::uint64_t packed() const { return begin_ + blocks_.position(); }
  void pass_over(std::size_t count) { blocks_.take(std::min(count, blocks_.peek(count).size())); }

  // Returns how many bytes of `out` it filled, and sets `ended` at the end of a member. With
  // Z_BLOCK it also returns between two blocks.
  std::size_t step(std::span<std::byte> out, int flush, bool& ended) {
    const std::span<const std::byte> fed = blocks_.peek(1);
    const auto room =
        static_cast<uInt>(std::min<std::size_t>(out.size(), std::numeric_limits<uInt>::max()));
    // zlib does not write to its input; its type is not const for old compilers' sake.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(fed.data()));
    stream_.avail_in = static_cast<uInt>(fed.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = room;
    const int code = inflate(&stream_, flush);
    blocks_.take(fed.size() - stream_.avail_in);
    if (code == Z_BUF_ERROR && fed.empty())
      damaged("truncated at", "expected more gzip data, found the end");
    if (code != Z_OK && code != Z_BUF_ERROR && code != Z_STREAM_END)
      damaged("corrupt at",
              cat("expected gzip data, found: ", stream_.msg ? stream_.msg : "nonsense"));
    ended = code == Z_STREAM_END;
    return room - stream_.avail_out;
  }

  // Whether another member begins here, as in `cat a.gz b.gz`.
  bool next_member() {
    const std::span<const std::byte> next = blocks_.peek(2);
    if (next.empty()) return false;
    if (next.size() < 2 || next[0] != std::byte{0x1F} || next[1] != std::byte{0x8B})
      damaged("trailing bytes from", "expected the end of the file, or more gzip data");
    inflateReset2(&stream_, kWithHeader);
    return true;
  }

 private:
  [[noreturn]] void damaged(std::string_view what, std::string_view why) const {
    throw lost_rest(name_, ": ", what, " byte ", packed(), ": ", why);
  }

  FileBlocks blocks_;
  const std::string& name_;
  const std::uint64_t begin_;
  z_stream stream_ = {};
};

struct GzipScan::State {
  GzipUnpacker unpacker;
  std::uint64_t span;
  GzipPoints points = {};
  std::uint64_t unpacked = 0;
  bool at_end = false;

  // Between two blocks, or before the first one of a member.
  void note_point() {
    constexpr int kBetween = 128, kLastBlock = 64, kBits = 7;
    z_stream& stream = unpacker.stream();
    const int where = stream.data_type;
    if (!(where & kBetween) || (where & kLastBlock)) return;
    if (!points.places.empty() && unpacked - points.places.back().unpacked < span) return;
    std::array<Bytef, kWindow> window;
    uInt size = 0;
    inflateGetDictionary(&stream, window.data(), &size);
    points.places.push_back({.unpacked = unpacked,
                             .packed = unpacker.packed(),
                             .bits = static_cast<std::uint32_t>(where & kBits),
                             .window = size});
    points.windows.append(reinterpret_cast<const char*>(window.data()), size);
  }
};

bool is_gzipped(ReadableFile& file) {
  std::array<std::byte, 2> begin{};
  file.seek(0);
  file.read(begin);
  file.seek(0);
  return begin == std::array{std::byte{0x1F}, std::byte{0x8B}};
}

GzipScan::GzipScan(ReadableFile& file, const std::string& name, std::uint64_t span)
    : state_(new State{.unpacker{file, name, kWithHeader}, .span = span}) {}
GzipScan::~GzipScan() = default;

std::size_t GzipScan::read(std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size() && !state_->at_end) {
    bool ended = false;
    const std::size_t more = state_->unpacker.step(out.subspan(done), Z_BLOCK, ended);
    done += more;
    state_->unpacked += more;
    if (ended)
      state_->at_end = !state_->unpacker.next_member();
    else
      state_->note_point();
  }
  return done;
}

GzipPoints GzipScan::take_points() { return std::move(state_->points); }

std::size_t read_gzipped(ReadableFile& file, const std::string& name, const GzipPoints& points,
                         ReadableFile& windows, std::uint64_t offset, std::span<std::byte> out) {
  const auto after = std::ranges::upper_bound(points.places, offset, {}, &GzipPoint::unpacked);
  require<IoError>(after != points.places.begin(), name, ": its index has no point before byte ",
                   offset);
  const GzipPoint& point = *std::prev(after);
  std::vector<std::byte> window(point.window);
  windows.seek(point.window_at);
  require<IoError>(point.window <= kWindow && point.bits < 8 && point.packed > 0 &&
                       windows.read(window) == window.size(),
                   name, ": its index is damaged; remove it");
  std::array<std::byte, 1> split{};
  file.seek(point.packed - split.size());
  file.read(split);
  GzipUnpacker unpacker(file, name, kWithoutHeader, point.packed);
  if (point.bits > 0)
    inflatePrime(&unpacker.stream(), static_cast<int>(point.bits),
                 std::to_integer<int>(split[0]) >> (8 - point.bits));
  inflateSetDictionary(&unpacker.stream(), reinterpret_cast<const Bytef*>(window.data()),
                       static_cast<uInt>(window.size()));
  std::uint64_t before = offset - point.unpacked;  // bytes that nobody wants
  std::vector<std::byte> unwanted(std::min<std::uint64_t>(before, kWindow));
  bool has_header = false;
  for (std::size_t done = 0;;) {
    if (done == out.size()) return done;
    bool ended = false;
    if (before == 0)
      done += unpacker.step(out.subspan(done), Z_NO_FLUSH, ended);
    else
      before -=
          unpacker.step(std::span(unwanted).first(std::min<std::uint64_t>(before, unwanted.size())),
                        Z_NO_FLUSH, ended);
    if (!ended) continue;
    if (!has_header) unpacker.pass_over(kSumAndLength);
    has_header = true;
    if (!unpacker.next_member()) return done;
  }
}

}  // namespace belfry
