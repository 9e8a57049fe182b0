#include "belfry/trainers/update_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/trainers/device_flag.h"

namespace belfry {
namespace {

TEST(UpdateBench, TimesFourCellsThatGiveTheSameBits) {
  for (const char* strategy : {"collective", "naive"})
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      const UpdateBench bench = bench_update({{30, 100}, {7}}, strategy,
                                             {.devices = parse_devices("cpu:3"),
                                              .threads = 2,
                                              .dtype = dtype,
                                              .iterations = 3,
                                              .warmup = 1});
      EXPECT_EQ(bench.elements, 3007);
      EXPECT_EQ(bench.bytes, 3007 * static_cast<std::int64_t>(size_of(dtype)));
      ASSERT_EQ(bench.cells.size(), 4u);
      for (std::size_t c = 0; c < 4; ++c) {
        EXPECT_EQ(bench.cells[c].fuse_updates, c % 2 == 1);
        EXPECT_EQ(bench.cells[c].share_replicas, c >= 2);
        EXPECT_EQ(bench.cells[c].wrong, 0) << strategy << ", cell " << c;
        EXPECT_GT(bench.cells[c].seconds, 0);
        EXPECT_GT(bench.cells[c].ratio, 0);
      }
      EXPECT_EQ(bench.cells[0].ratio, 1);
    }
}

TEST(UpdateBench, RefusesIntegersAsMomentumDoes) {
  EXPECT_THROW(
      bench_update({{8}}, "collective", {.devices = parse_devices("cpu:2"), .dtype = DType::kI32}),
      InvalidArgument);
}

}  // namespace
}  // namespace belfry
