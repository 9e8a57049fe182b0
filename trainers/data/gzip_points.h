// Reads a gzipped file in any order. A first pass notes points in it, at most about a MiB apart,
// from which it can be unpacked.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"

namespace belfry {

// A place between two blocks of deflate.
struct GzipPoint {
  std::uint64_t unpacked = 0, packed = 0;  // bytes before it
  std::uint32_t bits = 0;       // of the packed byte before it that belong to the next block
  std::uint32_t window = 0;     // unpacked bytes before it that later ones may repeat
  std::uint64_t window_at = 0;  // where the file with the windows has them
  bool operator==(const GzipPoint&) const = default;
};

struct GzipPoints {
  std::vector<GzipPoint> places;
  std::string windows;  // all of them, one after the other; empty if they were read from a file
};

inline constexpr std::uint64_t kPointSpan = std::uint64_t{1} << 20;  // of unpacked bytes

bool is_gzipped(ReadableFile& file);

// The first pass over a file, which checks its sums, too. Borrows file and name.
class GzipScan {
 public:
  // Points are at least `span` unpacked bytes apart.
  GzipScan(ReadableFile& file, const std::string& name, std::uint64_t span = kPointSpan);
  ~GzipScan();
  GzipScan(const GzipScan&) = delete;
  GzipScan& operator=(const GzipScan&) = delete;

  // The next unpacked bytes: fewer only at the end. Throws IoError, naming file and byte, where
  // they are truncated or corrupt.
  std::size_t read(std::span<std::byte> out);
  GzipPoints take_points();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Fills `out` with the unpacked bytes from `offset` on; returns how many there were. `windows` is
// the file with the windows of the points. Throws IoError for data that are corrupt.
std::size_t read_gzipped(ReadableFile& file, const std::string& name, const GzipPoints& points,
                         ReadableFile& windows, std::uint64_t offset, std::span<std::byte> out);

}  // namespace belfry
