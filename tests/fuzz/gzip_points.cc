// Input: a gzipped file.
#include "belfry/trainers/data/gzip_points.h"

#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/data/byte_input.h"

constexpr std::uint64_t kSpan = 64;  // so that small files have several points

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  const std::vector<std::byte> bytes = test::bytes_of({data, size});
  BytesFile file(bytes);
  test::may_refuse([&] {
    GzipScan scan(file, "fuzz", kSpan);
    std::vector<std::byte> whole(4096), part(10);
    whole.resize(scan.read(whole));
    GzipPoints points = scan.take_points();
    std::uint64_t window_at = 0;
    for (GzipPoint& point : points.places) {
      point.window_at = window_at;
      window_at += point.window;
    }
    if (points.places.empty() || whole.size() < part.size()) return;
    BytesFile windows(std::as_bytes(std::span(points.windows)));
    const std::size_t begin = whole.size() - part.size();
    const std::size_t got = read_gzipped(file, "fuzz", points, windows, begin, part);
    test::check(got == part.size() && std::ranges::equal(part, std::span(whole).last(got)),
                "other bytes than at first");
  });
  return 0;
}
