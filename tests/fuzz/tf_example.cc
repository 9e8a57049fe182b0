// Input: a tf.train.Example.
#include "belfry/trainers/data/tf_example.h"

#include "belfry/tests/fuzz/target.h"

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  const std::vector<std::byte> message = test::bytes_of({data, size});
  const TfExample example(message);
  test::may_refuse([&] {
    if (const auto bytes = example.bytes("image/encoded"))
      test::check(bytes->data() >= message.data() &&
                      bytes->data() + bytes->size() <= message.data() + message.size(),
                  "a value beyond the message");
  });
  test::may_refuse([&] { example.integer("image/class/label"); });
  return 0;
}
