// Input: an index of records, made for a file of 1000 bytes at time 7.
#include "belfry/trainers/data/record_index.h"

#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/data/byte_input.h"

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(2 * size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  const std::vector<std::byte> bytes = test::bytes_of({data, size});
  BytesFile file(bytes);
  test::may_refuse([&] {
    const RecordIndex index = read_index(file, IndexedKind::kTar, 1000, 7);
    for (const IndexedRecord& record : index.records)
      test::check(record.offset + record.head + record.length <= 1000 * 1032,
                  "a record beyond what the file may unpack to");
    for (const GzipPoint& point : index.points.places)
      test::check(point.window_at + point.window <= size, "a window beyond the file");
  });
  return 0;
}
