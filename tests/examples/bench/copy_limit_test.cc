#include "belfry/examples/bench/copy_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/examples/bench/reduction_bench.h"
#include "belfry/framework/base/error.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/trainers/flags/device_flag.h"

namespace belfry {
namespace copy_limit_test {

TEST(CopyLimit, CopiesABufferOfEachDevice) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  {
    CopyLimit limit(parse_devices("gpu:3"), 2, 1000);
    for (int i = 1; i <= 3; ++i) {
      limit.copy();
      EXPECT_EQ(gpus.calls().copied, 3 * i);
    }
    limit.copy(4);
    EXPECT_EQ(gpus.calls().copied, 3 * (3 + 4));
    EXPECT_EQ(gpus.calls().stamps, 3 * (3 + 1));
    EXPECT_EQ(gpus.in_use(0), 4 * 1000);
    EXPECT_EQ(gpus.in_use(1), 2 * 1000);
  }
  for (const int gpu : {-1, 0, 1}) EXPECT_EQ(gpus.in_use(gpu), 0) << gpu;
}

TEST(CopyLimit, ThrowsWhatAGpuFailsWith) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  CopyLimit limit(parse_devices("gpu:2"), 2, 64);
  gpus.fail(0, "an illegal address");
  EXPECT_THROW(limit.copy(), DeviceError);
  gpus.mend();
}

TEST(CopyLimit, RefusesWhatIsNoGpu) {
  EXPECT_THROW(CopyLimit(parse_devices("cpu:1"), 1, 64), InvalidArgument);
}

TEST(ReductionBench, ComparesGpusWithCopies) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const ReductionBenchOptions options{.devices = parse_devices("gpu:4"),
                                      .logical_gpus = 4,
                                      .threads = 1,
                                      .iterations = 2,
                                      .warmup = 0};
  const ReductionBench bench = bench_reduction({{3000}}, {"collective", "naive"}, options);
  EXPECT_GT(bench.limit_seconds, 0);
  ASSERT_EQ(bench.results.size(), 2u);
  for (const ReductionResult& result : bench.results) {
    EXPECT_GT(result.in_place.seconds, 0);
    EXPECT_EQ(result.in_place.wrong, 0);
    EXPECT_EQ(result.out_of_place.wrong, 0);
  }
}

}  // namespace copy_limit_test
}  // namespace belfry
