#include "belfry/examples/bench/update_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/util/busy_texts.h"
#include "belfry/tests/trainers/util/fake_console.h"
#include "belfry/trainers/flags/device_flag.h"

namespace belfry {
namespace update_bench_test {

// Gives twice the sum on every tower.
class Doubling final : public Strategy {
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const override {
    std::vector<Output> totals;
    for (int v = 0; v < grads.variables(); ++v) totals.push_back(add_n(grads.values(v)) * 2);
    return std::vector(static_cast<std::size_t>(grads.towers()), totals);
  }
};
const StrategyRegistration doubling{"update_doubling", [] { return std::make_unique<Doubling>(); }};

TEST(UpdateBench, AsksForDeterministicKernelsWhereItIs) {
  for (const bool deterministic : {false, true}) {
    const test::StandInGpus gpus(2);
    const test::UseGpus use(gpus);
    bench_update({{5}}, "naive",
                 {.devices = parse_devices("gpu:2"),
                  .threads = 1,
                  .deterministic = deterministic,
                  .iterations = 1,
                  .warmup = 0});
    const test::StandInGpus::Calls calls = gpus.calls();
    EXPECT_GT(deterministic ? calls.deterministic : calls.fastest, 0);
    EXPECT_EQ(deterministic ? calls.fastest : calls.deterministic, 0);
  }
}

TEST(UpdateBench, ShowsHowFarItIs) {
  FakeConsole fake(false, /*per_look=*/11);  // so every part has a line
  bench_update({{30}}, "naive",
               {.devices = parse_devices("cpu:2"),
                .threads = 1,
                .iterations = 2,
                .warmup = 1,
                .console = &fake.console});
  const std::string text = fake.printed();
  for (const char* line : {"# naive: prepared case 1/4\n", "# naive: checked case 4/4\n",
                           "# naive: run 1/15\n", "# naive: run 15/15\n"})
    EXPECT_THAT(text, testing::HasSubstr(line));
}

TEST(UpdateBench, SaysThatPreparingGoesOn) {
  const auto bench = [] {
    bench_update({{30}}, "naive",
                 {.devices = parse_devices("cpu:2"), .threads = 1, .iterations = 1});
  };
  EXPECT_THAT(busy_texts(bench), testing::ElementsAre("preparing naive", "preparing naive",
                                                      "preparing naive", "preparing naive"));
}

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
      EXPECT_GT(bench.limit_seconds, 0);
    }
}

// It compares sums and means, also of many towers. All cells are alike, so only the first can be
// wrong.
TEST(UpdateBench, ComparesWithMomentumComputedPlainly) {
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMean}) {
    const ReductionBenchOptions options{.devices = parse_devices("cpu:8"),
                                        .threads = 2,
                                        .reduction = reduction,
                                        .iterations = 1,
                                        .warmup = 0};
    EXPECT_EQ(bench_update({{3000}}, "ring", options).cells[0].wrong, 0);
    const UpdateBench wrong = bench_update({{3000}}, "update_doubling", options);
    EXPECT_GT(wrong.cells[0].wrong, 8 * 2900);
    EXPECT_EQ(wrong.cells[3].wrong, 0);
  }
}

// Two devices have 1024 floats each; a unit is 4096 bytes. Gradients and the limit's buffers take 4
// units. Variables and slots of a session take 4, or 2 if replicas are shared. Unless updates are
// fused, the sum of both devices adds to that.
TEST(UpdateBench, PlansTheMemoryOfAllFourSessions) {
  const ReductionBenchOptions options{.devices = parse_devices("cpu:2")};
  EXPECT_EQ(update_memory({{1024}}, "collective", options), 4096 * (4 + 2 * 4 + 2 * 2 + 2 * 1));
}

TEST(UpdateBench, RefusesIntegersAsMomentumDoes) {
  EXPECT_THROW(
      bench_update({{8}}, "collective", {.devices = parse_devices("cpu:2"), .dtype = DType::kI32}),
      InvalidArgument);
}

}  // namespace update_bench_test
}  // namespace belfry
