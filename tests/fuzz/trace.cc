// Input: a trace, as belfry trace summary reads it.
#include <string_view>

#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/commands/trace_summary.h"

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  test::may_refuse([&] {
    const TraceSummary summary = sum_up_trace(text, UnitPeak{false, 1e9, 1e9});
    test::check(summary.all.calls > 0 && !to_text(summary, 0).empty(), "nothing to show");
    JsonValue::parse(to_json(summary).str());
  });
  return 0;
}
