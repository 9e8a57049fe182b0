#include "timed_limit.h"

#include <algorithm>

namespace belfry {

TimedLimit::TimedLimit(Interleaved& ways, const ReductionBenchOptions& options, std::int64_t bytes,
                       int workers)
    : ways_(ways), aggregate_(options.aggregate) {
  if (std::ranges::all_of(options.devices, &DeviceSpec::is_gpu)) {
    copy_ = std::make_unique<CopyLimit>(options.devices, options.logical_gpus, bytes);
    added_ = {ways.add([&limit = *copy_, times = aggregate_] { limit.copy(times); })};
    return;
  }
  scale_ = std::make_unique<ByteLimit>(static_cast<int>(options.devices.size()), bytes, workers);
  const auto add = [&](void (ByteLimit::*scale)()) {
    return ways.add([&limit = *scale_, scale, times = aggregate_] {
      for (int i = 0; i < times; ++i) (limit.*scale)();
    });
  };
  added_ = {add(&ByteLimit::streams_in_turn), add(&ByteLimit::streams_together)};
}

double TimedLimit::seconds() const {
  double least = ways_.seconds(added_.front());
  for (const int way : added_) least = std::min(least, ways_.seconds(way));
  return least / aggregate_;
}

}  // namespace belfry
