// Input: a file of CIFAR-10's binary version, gzipped or not.
#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/data/byte_input.h"
#include "belfry/trainers/data/cifar10.h"

// What gzip unpacks to may be 1032 times as large, and memory grows by doubling.
std::size_t belfry::test::largest_allowed(const std::uint8_t* data, std::size_t size) {
  const bool packed = size >= 1 && data[0] == 0x1F;
  return mib_or_twice(packed ? 1032 * size : size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  const std::vector<std::byte> bytes = test::bytes_of({data, size});
  test::may_refuse([&] {
    BytesFile file(bytes);
    BadRecords bad({.most = 8});
    data::CifarImages images;
    data::read_cifar(file, "fuzz", bad, images);
    test::check(images.pixels.size() == 3072 * images.labels.size(), "images without labels");
    for (const std::uint8_t label : images.labels) test::check(label < 10, "a label that is none");
  });
  return 0;
}
