#include "belfry/examples/bench/byte_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/examples/bench/reduction_bench.h"
#include "belfry/framework/base/error.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/trainers/flags/device_flag.h"

namespace belfry {
namespace byte_limit_test {

TEST(ByteLimit, CopiesABufferOfEachGpu) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  {
    ByteLimit limit(parse_devices("gpu:3"), 2, 1000, 1);
    for (int i = 1; i <= 3; ++i) {
      limit.run();
      EXPECT_EQ(gpus.calls().copied, 3 * i);
    }
    limit.run(4);
    EXPECT_EQ(gpus.calls().copied, 3 * (3 + 4));
    EXPECT_EQ(gpus.calls().stamps, 3 * (3 + 1));
    EXPECT_EQ(gpus.in_use(0), 4 * 1000);
    EXPECT_EQ(gpus.in_use(1), 2 * 1000);
  }
  for (const int gpu : {-1, 0, 1}) EXPECT_EQ(gpus.in_use(gpu), 0) << gpu;
}

TEST(ByteLimit, ThrowsWhatAGpuFailsWith) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  ByteLimit limit(parse_devices("gpu:2"), 2, 64, 1);
  gpus.fail(0, "an illegal address");
  EXPECT_THROW(limit.run(), DeviceError);
  gpus.mend();
}

TEST(ByteLimit, RefusesGpusThatAreNotThere) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  EXPECT_THROW(ByteLimit(parse_devices("gpu:2"), 1, 64, 1), Error);
}

TEST(ByteLimit, ScalesABufferForEachDeviceOnHosts) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  ByteLimit limit(parse_devices("cpu:3"), 1, 1000, 2);
  limit.run(3);
  EXPECT_EQ(gpus.calls().copied, 0);
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

}  // namespace byte_limit_test
}  // namespace belfry
