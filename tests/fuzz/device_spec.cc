// Input: the text of a device specification.
#include "belfry/framework/graph/device_spec.h"

#include <string_view>

#include "belfry/tests/fuzz/target.h"

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  test::may_refuse([&] {
    const DeviceSpec spec(text);
    const DeviceSpec again(spec.str());
    test::check(again == spec, "parse(print(spec)) differs from spec");
    test::check(again.str() == spec.str(), "printing is not canonical");
    test::check(spec.merged_with(spec) == spec, "merging with itself changes a spec");
  });
  return 0;
}
