#include "belfry/trainers/data/png_data.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include <zlib.h>

#include "belfry/framework/base/require.h"

namespace belfry {
namespace {

// Shorter data inflate to at most 64 MiB, as deflate makes a byte of at most 1,032.
constexpr std::size_t kShort = 64 << 10;
constexpr std::int64_t kMostBytesOfPixel = 8;  // RGBA of 16 bits
constexpr std::size_t kSignature = 8, kChunkHead = 8, kChunkEnd = 4;

std::uint32_t big_endian(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value = value << 8 | std::to_integer<std::uint32_t>(bytes[at + i]);
  return value;
}

// Calls f(type, data) of each chunk that the file has whole.
void each_chunk(std::span<const std::byte> file, const auto& f) {
  for (std::size_t at = kSignature; at + kChunkHead <= file.size();) {
    const std::size_t size = big_endian(file, at), begin = at + kChunkHead;
    if (size > file.size() - begin) return;
    f(std::string_view(reinterpret_cast<const char*>(file.data()) + at + 4, 4),
      file.subspan(begin, size));
    at = begin + size + kChunkEnd;
  }
}

// Counts the bytes that data inflate to, up to a limit.
class Inflater {
 public:
  explicit Inflater(std::int64_t most) : most_(most), scratch_(kShort) {
    require(inflateInit(&stream_) == Z_OK, "PNG: no memory to inflate its data");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Data that are corrupt count as ended: libpng says what is wrong with them.
  void add(std::span<const std::byte> data) {
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(data.data()));
    stream_.avail_in = static_cast<uInt>(data.size());
    while (!ended_ && (stream_.avail_in > 0 || stream_.avail_out == 0)) {
      stream_.next_out = scratch_.data();
      stream_.avail_out = static_cast<uInt>(scratch_.size());
      ended_ = inflate(&stream_, Z_NO_FLUSH) != Z_OK;
      count_ += std::ssize(scratch_) - static_cast<std::int64_t>(stream_.avail_out);
      require(count_ <= most_, "PNG: the data inflate to more than the pixels take");
    }
  }

 private:
  z_stream stream_{};
  std::int64_t count_ = 0;
  const std::int64_t most_;
  std::vector<Bytef> scratch_;
  bool ended_ = false;
};

}  // namespace

void check_png_data(std::span<const std::byte> file) {
  std::int64_t height = 0, width = 0;
  std::size_t size = 0;
  each_chunk(file, [&](std::string_view type, std::span<const std::byte> data) {
    if (type == "IHDR" && data.size() >= 8)
      width = big_endian(data, 0), height = big_endian(data, 4);
    if (type == "IDAT") size += data.size();
  });
  if (size <= kShort) return;
  // Each line begins with a byte. Interlaced images have up to twice as many lines, and parts of
  // bytes.
  Inflater inflater(2 * height * (width * kMostBytesOfPixel + 1) + 64);
  each_chunk(file, [&](std::string_view type, std::span<const std::byte> data) {
    if (type == "IDAT") inflater.add(data);
  });
}

}  // namespace belfry
