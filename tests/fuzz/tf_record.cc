// Input: a TFRecord file.
#include "belfry/trainers/data/tf_record.h"

#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/data/byte_input.h"

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(2 * size);  // the list of empty records
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  const std::vector<std::byte> bytes = test::bytes_of({data, size});
  BytesFile file(bytes);
  BadRecords bad({.most = 1});
  test::may_refuse([&] {
    std::uint64_t end = 0;
    for (const TfRecordPlace& place : find_tf_records(file, "fuzz", bad)) {
      test::check(place.offset == end, "a gap between records");
      end = place.offset + place.length + 16;
      test::check(end <= size, "a record beyond the file");
      test::may_refuse([&] {
        test::check(read_tf_record(file, "fuzz", place).size() == place.length, "wrong length");
      });
    }
  });
  return 0;
}
