#include "belfry/examples/bench/reduction_bench.h"

#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/prediction/machine.h"
#include "belfry/examples/bench/reduction_oracle.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/device/collective_hook.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/util/busy_texts.h"
#include "belfry/tests/trainers/util/fake_console.h"
#include "belfry/trainers/flags/device_flag.h"

namespace belfry {
namespace reduction_bench_test {

using testing::HasSubstr;

ReductionBenchOptions options(const char* devices) {
  return {.devices = parse_devices(devices), .threads = 2, .iterations = 2, .warmup = 0};
}

using Sums = std::vector<std::vector<Output>>;

// Adds one tower after another. For three towers or more the tree has another order.
class Sequential final : public Strategy {
 public:
  explicit Sequential(bool claims) : claims_(claims) {}
  bool canonical(int) const override { return claims_ && pretending; }

  static inline bool pretending = false;  // false while other tests go through all strategies

 private:
  Sums sum(const GradientTable& grads) const override {
    std::vector<Output> totals;
    for (int v = 0; v < grads.variables(); ++v) {
      Output total = grads.at(0, v).value;
      for (int t = 1; t < grads.towers(); ++t) total = total + grads.at(t, v).value;
      totals.push_back(total);
    }
    return Sums(static_cast<std::size_t>(grads.towers()), totals);
  }
  bool claims_;
};

// Gives twice the sum.
class Doubling final : public Strategy {
  Sums sum(const GradientTable& grads) const override {
    std::vector<Output> totals;
    for (int v = 0; v < grads.variables(); ++v) totals.push_back(add_n(grads.values(v)) * 2);
    return Sums(static_cast<std::size_t>(grads.towers()), totals);
  }
};

const StrategyRegistration sequential{"bench_sequential",
                                      [] { return std::make_unique<Sequential>(false); }};
const StrategyRegistration pretender{"bench_pretender",
                                     [] { return std::make_unique<Sequential>(true); }};
const StrategyRegistration doubling{"bench_doubling", [] { return std::make_unique<Doubling>(); }};

TEST(ReductionOracle, HasTheBitsOfTheTreeAndAllowsOtherOrdersIfTheyAreNotCanonical) {
  const ReductionOracle oracle(Shape{3000}, DType::kF32, 3, Reduction::kMean);
  const Tensor a = oracle.input(0), b = oracle.input(1), c = oracle.input(2);
  EXPECT_FALSE(a == b);
  Tensor tree(Shape{3000}, DType::kF32), other(Shape{3000}, DType::kF32);
  for (std::size_t i = 0; i < 3000; ++i) {
    const float x = a.data<float>()[i], y = b.data<float>()[i], z = c.data<float>()[i];
    ASSERT_GE(x, -1);
    ASSERT_LT(x, 1);
    tree.mutable_data<float>()[i] = ((x + y) + z) / 3;
    other.mutable_data<float>()[i] = (x + (y + z)) / 3;
  }
  EXPECT_EQ(oracle.wrong(tree, true), 0);
  EXPECT_EQ(oracle.wrong(tree, false), 0);
  EXPECT_GT(oracle.wrong(other, true), 100);
  EXPECT_EQ(oracle.wrong(other, false), 0);
  tree.mutable_data<float>()[7] += 0.001F;
  tree.mutable_data<float>()[8] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(oracle.wrong(tree, false), 2);
}

TEST(ReductionOracle, SumsIntegersExactlyAndKnowsNoMeanOfThem) {
  const ReductionOracle oracle(Shape{5}, DType::kI32, 2, Reduction::kSum);
  Tensor sum = oracle.input(0);
  for (std::size_t i = 0; i < 5; ++i)
    sum.mutable_data<std::int32_t>()[i] += oracle.input(1).data<std::int32_t>()[i];
  EXPECT_EQ(oracle.wrong(sum, false), 0);
  ++sum.mutable_data<std::int32_t>()[4];
  EXPECT_EQ(oracle.wrong(sum, false), 1);
  EXPECT_THROW(ReductionOracle(Shape{5}, DType::kI32, 2, Reduction::kMean), InvalidArgument);
}

TEST(ReductionOracle, SumsSixteenBitsInF32AndRoundsOnce) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const ReductionOracle oracle(Shape{2000}, dtype, 3, Reduction::kSum);
    const kernels::HalfConversion convert = kernels::half_conversion(dtype);
    std::vector<float> sums(2000);
    for (const int tower : {0, 1, 2}) {
      const Tensor input = oracle.input(tower);
      std::vector<float> values(2000);
      convert.widen(reinterpret_cast<const std::uint16_t*>(input.raw()), values.data(), 2000);
      for (std::size_t i = 0; i < 2000; ++i) sums[i] = tower == 0 ? values[i] : sums[i] + values[i];
    }
    Tensor result(Shape{2000}, dtype);
    auto* const bits = reinterpret_cast<std::uint16_t*>(result.mutable_raw());
    convert.narrow(sums.data(), bits, 2000);
    EXPECT_EQ(oracle.wrong(result, true), 0);
    ++bits[5];
    EXPECT_EQ(oracle.wrong(result, true), 1);
    EXPECT_EQ(oracle.wrong(result, false), 0);
    bits[5] = 0x7E00;  // NaN, or a very large number
    EXPECT_EQ(oracle.wrong(result, false), 1);
  }
}

TEST(ReductionBench, ShowsHowFarItIs) {
  ReductionBenchOptions asked = options("cpu:2");
  asked.warmup = 1;
  asked.iterations = 3;
  FakeConsole fake(false, /*per_look=*/11);  // so every part has a line
  asked.console = &fake.console;
  bench_reduction({{1024}}, {"naive", "collective"}, asked);
  const std::string text = fake.printed();
  for (const char* line :
       {"# 4096 bytes: built naive\n", "# 4096 bytes: prepared collective\n",
        "# 4096 bytes: writing what is summed\n", "# 4096 bytes: checking collective\n",
        "# 4096 bytes: run 1/24\n", "# 4096 bytes: run 24/24\n"})
    EXPECT_THAT(text, testing::HasSubstr(line));
  FakeConsole fast;
  asked.console = &fast.console;
  bench_reduction({{1024}}, {"naive", "collective"}, asked);
  EXPECT_EQ(fast.printed(), "");
}

TEST(ReductionBench, SaysThatASinglePartGoesOn) {
  ReductionBenchOptions asked = options("cpu:2");
  asked.threads = asked.iterations = 1;
  EXPECT_THAT(busy_texts([&] {
                bench_reduction({{5}}, {"naive", "ring"}, asked);
              }),
              testing::ElementsAre("building naive", "building ring", "preparing naive",
                                   "preparing ring", "checking naive", "checking ring"));
  EXPECT_THAT(busy_texts([&] { reduction_memory({{5}}, {"naive"}, asked); }), testing::IsEmpty())
      << "who plans many says so";
}

TEST(ReductionBench, AsksForDeterministicKernelsWhereItIs) {
  for (const bool deterministic : {false, true}) {
    const test::StandInGpus gpus(2);
    const test::UseGpus use(gpus);
    ReductionBenchOptions asked = options("gpu:2");
    asked.deterministic = deterministic;
    bench_reduction({{5}}, {"naive"}, asked);
    const test::StandInGpus::Calls calls = gpus.calls();
    EXPECT_GT(deterministic ? calls.deterministic : calls.fastest, 0);
    EXPECT_EQ(deterministic ? calls.fastest : calls.deterministic, 0);
  }
}

// Each timed step of both forms runs them one after another. The checks run one.
TEST(ReductionBench, TimesSeveralReductionsInAStep) {
  ReductionBenchOptions asked = options("cpu:2");
  asked.threads = asked.iterations = 1;
  asked.aggregate = 3;
  std::vector<int> reduced;  // by node
  set_collective_hook([&](const Node& node, WorkRange) { reduced.push_back(node.id()); });
  const ReductionBench bench = bench_reduction({{5}}, {"collective"}, asked);
  set_collective_hook({});
  EXPECT_EQ(bench.results[0].in_place.wrong, 0);
  EXPECT_EQ(bench.results[0].out_of_place.wrong, 0);
  // In order of creation: the first, and for each further one a node in place and one out of place.
  std::vector<int> all = reduced;
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  ASSERT_EQ(all.size(), 5u);
  const std::vector<int> out_of_place{all[0], all[2], all[4]}, in_place{all[0], all[1], all[3]};
  EXPECT_FALSE(std::ranges::search(reduced, out_of_place).empty());
  EXPECT_FALSE(std::ranges::search(reduced, in_place).empty());
}

TEST(ReductionBench, FindsNothingWrongWithTheStrategiesThatWeHave) {
  for (const char* devices : {"cpu:1", "cpu:2", "cpu:3", "cpu:8"})
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32}) {
      ReductionBenchOptions asked = options(devices);
      asked.dtype = dtype;
      asked.list_refused = true;
      const ReductionBench bench =
          bench_reduction({{5}, {300, 7}}, {"collective", "naive", "hierarchical"}, asked);
      EXPECT_EQ(bench.elements, 2105);
      EXPECT_EQ(bench.bytes, 2105 * static_cast<std::int64_t>(size_of(dtype)));
      EXPECT_GT(bench.limit_seconds, 0);
      ASSERT_EQ(bench.results.size(), 3u);
      for (const ReductionResult& result : bench.results) {
        if (result.strategy == "hierarchical" && asked.devices.size() % 2 == 1) {
          EXPECT_THAT(result.refusal, HasSubstr("even number of towers"));
          continue;
        }
        EXPECT_EQ(result.refusal, "");
        EXPECT_EQ(result.in_place.wrong, 0) << result.strategy << " on " << devices;
        EXPECT_EQ(result.out_of_place.wrong, 0) << result.strategy << " on " << devices;
        EXPECT_GT(result.in_place.seconds, 0);
        EXPECT_GT(result.out_of_place.seconds, 0);
      }
    }
}

// Other strategies would round sums of these types more than once.
TEST(ReductionBench, ChecksSixteenBitTypesOfTheCollective) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    ReductionBenchOptions asked = options("cpu:3");
    asked.dtype = dtype;
    asked.list_refused = true;
    const ReductionBench bench = bench_reduction({{5}, {300, 7}}, {"collective", "naive"}, asked);
    EXPECT_EQ(bench.bytes, 2105 * 2);
    EXPECT_EQ(bench.results[0].refusal, "");
    EXPECT_EQ(bench.results[0].in_place.wrong, 0);
    EXPECT_EQ(bench.results[0].out_of_place.wrong, 0);
    EXPECT_THAT(bench.results[1].refusal, HasSubstr("no host kernel"));
  }
}

TEST(ReductionBench, DividesMeansAndSkipsChecksThatNobodyAsksFor) {
  ReductionBenchOptions asked = options("cpu:4");
  asked.reduction = Reduction::kMean;
  EXPECT_EQ(bench_reduction({{300}}, {"naive"}, asked).results[0].in_place.wrong, 0);
  asked.check = false;
  EXPECT_FALSE(bench_reduction({{300}}, {"naive"}, asked).results[0].in_place.wrong);
}

TEST(ReductionBench, CountsTheWrongElementsOfEveryTower) {
  Sequential::pretending = true;
  const ReductionBench bench = bench_reduction(
      {{1000}}, {"bench_doubling", "bench_sequential", "bench_pretender"}, options("cpu:4"));
  EXPECT_EQ(bench.results[0].in_place.wrong, 4 * 999);  // twice zero is zero
  EXPECT_EQ(bench.results[0].out_of_place.wrong, 4 * 999);
  EXPECT_EQ(bench.results[1].in_place.wrong, 0);  // it has another order, and says so
  EXPECT_GT(bench.results[2].in_place.wrong.value(), 100);
  EXPECT_GT(bench.results[2].out_of_place.wrong.value(), 100);
  Sequential::pretending = false;
}

TEST(ReductionBench, ThrowsWhatAStrategySaysUnlessRefusalsAreListed) {
  try {
    bench_reduction({{8}}, {"naive", "hierarchical"}, options("cpu:3"));
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("hierarchical needs an even number"));
  }
}

TEST(ReductionBench, ResolvesAutoByTheMachineAndPredictsWhatItTimes) {
  MachineDescription machine{
      .devices = parse_devices("cpu:2"), .workers = 2, .run_us = 1, .bandwidth = {{1, 10, 20}}};
  ReductionBenchOptions asked = options("cpu:2");
  asked.machine = &machine;
  const ReductionBench bench = bench_reduction({{100000}}, {"auto", "naive"}, asked);
  const ReductionResult& chosen = bench.results[0];
  EXPECT_EQ(chosen.strategy, "auto");
  EXPECT_EQ(chosen.resolved, "collective");
  EXPECT_THAT(chosen.reason, HasSubstr("auto: collective, predicted"));
  EXPECT_EQ(chosen.in_place.wrong, 0);
  EXPECT_TRUE(chosen.canonical);
  EXPECT_EQ(bench.results[1].resolved, "naive");
  EXPECT_EQ(bench.results[1].reason, "");
  // The workers read two tensors of 400,000 bytes and write one together: at 20 bytes per ns, plus
  // 1 us.
  ASSERT_TRUE(bench.results[1].out_of_place.predicted);
  EXPECT_NEAR(*bench.results[1].out_of_place.predicted, 81e-6, 1e-9);

  // These devices stand for another machine, so nothing can be predicted here.
  machine.workers = 0;
  machine.links = {{{}, {10, 1}}, {{10, 1}, {}}};
  machine.devices[0] = DeviceSpec::local("GPU", 0);
  machine.devices[1] = DeviceSpec::local("GPU", 1);
  const ReductionBench linked = bench_reduction({{8}}, {"auto"}, asked);
  EXPECT_NE(linked.results[0].resolved, "auto");
  EXPECT_FALSE(linked.results[0].in_place.predicted);

  asked.machine = nullptr;
  EXPECT_THROW(bench_reduction({{8}}, {"auto"}, asked), InvalidArgument);
}

// Two devices have 1024 floats each; a unit is 4096 bytes. Variables and the limit's buffers take 4
// units, and a sum out of place 1. A check has its own variables and sum (3), fetches both sums
// twice (4), and compares 2, but it lacks the buffers. naive makes its sum in the same arena.
TEST(ReductionBench, PlansItsMemoryAndTakesNone) {
  ReductionBenchOptions asked = options("cpu:2");
  asked.check = false;
  EXPECT_EQ(reduction_memory({{1024}}, {"collective"}, asked), 4096 * 5);
  EXPECT_EQ(reduction_memory({{512}, {512}}, {"auto"}, asked), 4096 * 5);
  EXPECT_EQ(reduction_memory({{1024}}, {"collective", "naive"}, asked), 4096 * 5);
  asked.check = true;
  EXPECT_EQ(reduction_memory({{1024}}, {"collective"}, asked), 4096 * (3 + 3 + 4 + 2));
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    asked.dtype = dtype;
    EXPECT_GT(reduction_memory({{std::int64_t{1} << 40}}, {"collective"}, asked),
              std::int64_t{1} << 43);
  }
}

// 2 (K - 1) / K: 1 for two, 1.75 for eight.
TEST(ReductionBench, CountsBusBandwidthAsNcclTestsDo) {
  EXPECT_EQ(bus_bandwidth(1000, 1, 2), 1000);
  EXPECT_EQ(bus_bandwidth(1000, 0.5, 8), 3500);
  EXPECT_EQ(bus_bandwidth(1000, 1, 1), 0);
}

// Two processes with two devices each.
TEST(ReductionBench, OfSeveralProcessesChecksTheSumOverAllTowers) {
  std::mutex mutex;
  std::vector<ReductionBench> all;
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    ReductionBenchOptions several = options("cpu:2");
    several.threads = 1;
    several.processes = processes;
    several.place = processes->place();
    const ReductionBench bench =
        bench_reduction({Shape{5000}, Shape{3}},
                        {"collective", "ring", "collective#3", "collective:1k:ring"}, several);
    const std::lock_guard lock(mutex);
    all.push_back(bench);
  });
  ASSERT_EQ(all.size(), 2u);
  for (std::size_t i = 0; i < 4; ++i) {
    const ReductionResult &one = all[0].results[i], &other = all[1].results[i];
    EXPECT_EQ(one.in_place.wrong, 0) << one.strategy;
    EXPECT_EQ(one.out_of_place.wrong, 0) << one.strategy;
    EXPECT_EQ(one.canonical, !one.strategy.ends_with("ring"));
    EXPECT_EQ(one.in_place.seconds, other.in_place.seconds) << "of the slowest, in both";
    EXPECT_GT(one.in_place.seconds, 0);
  }
}

TEST(ReductionBench, OfSeveralProcessesRefusesWhatCannotReachThem) {
  ReductionBenchOptions several = options("cpu:1");
  several.place = {0, 2};
  EXPECT_EQ(reduction_refusal({Shape{4}}, "collective", several), "");
  EXPECT_EQ(reduction_refusal({Shape{4}}, "ring", several), "");
  EXPECT_THAT(reduction_refusal({Shape{4}}, "naive", several),
              HasSubstr("combines the gradients of one process, and this is one of several; use "
                        "collective, ring or mpi"));
  several.dtype = DType::kI32;
  EXPECT_THAT(reduction_refusal({Shape{4}}, "collective", several),
              HasSubstr("sums over processes are of f32 or f64, not of i32"));
}

TEST(ReductionBench, OfProcessesByTcpRefusesMpi) {
  for (const char* spec : {"mpi", "collective:1k:mpi"}) {
    std::string why;
    try {
      test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
        ReductionBenchOptions several = options("cpu:1");
        several.processes = processes;
        several.place = processes->place();
        bench_reduction({Shape{4}}, {spec}, several);
      });
    } catch (const InvalidArgument& error) {
      why = error.what();
    }
    EXPECT_THAT(why, HasSubstr("it adds by MPI, and TCP carries messages here")) << spec;
  }
}

}  // namespace reduction_bench_test
}  // namespace belfry
