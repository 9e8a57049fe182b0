// Predictions of whole reductions: the cost model, and the choice that uses it.
#include "belfry/allreduce/prediction/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/allreduce/prediction/machines.h"

namespace belfry {
namespace choice_test {

using testing::HasSubstr;

TensorType floats(std::int64_t count) { return {{count}, DType::kF32}; }

double microseconds(const char* strategy, const std::vector<TensorType>& gradients,
                    const std::vector<DeviceSpec>& on, const MachineDescription& machine) {
  return 1e6 *
         predict_reduction(*make_strategy(strategy), gradients, on, machine, {Reduction::kSum});
}

// Devices have links of 1 GB/s and 10 us. Kernels take 5 us and touch 10 bytes per ns.
MachineDescription linked(int count) { return machine_of_links(count, {10, 1}, 10); }

// A copy of 4000 bytes takes 5 + 10 + 4 us. The sum reads 4000 bytes and overwrites the copy, which
// counts twice: 5 + 1.2 us. The path is a copy, a sum, a copy back into the variable, and an
// assignment of 5 us that finds the value there.
TEST(Prediction, AddsUpCopiesAndSumsAlongTheLongestPath) {
  const MachineDescription machine = linked(2);
  EXPECT_NEAR(microseconds("naive", {floats(1000)}, machine.devices, machine), 19 + 6.2 + 19 + 5,
              1e-6);
}

// Three copies go over links of their own at the same time. Over a bus they take turns.
TEST(Prediction, TransfersOverABusTakeTurns) {
  MachineDescription machine = linked(4);
  EXPECT_NEAR(microseconds("naive", {floats(1000)}, machine.devices, machine), 19 + 7 + 19 + 5,
              1e-6);
  for (auto& from : machine.links)
    for (Link& link : from) link.bus = "host";
  EXPECT_NEAR(microseconds("naive", {floats(1000)}, machine.devices, machine),
              3 * 19 + 7 + 3 * 19 + 5, 1e-6);
}

// Fragments of 2000 bytes take 5 + 10 + 2 us each way. Then come sums of two fragments.
TEST(Prediction, ACollectiveOverLinksExchangesFragments) {
  MachineDescription machine = linked(2);
  const double sums = 4 * 2000 / 10e3, assignment = 5;
  EXPECT_NEAR(microseconds("collective", {floats(1000)}, machine.devices, machine),
              5 + 2 * (5 + 12) + sums + assignment, 1e-6);
  for (auto& from : machine.links)
    for (Link& link : from) link.bus = "host";
  EXPECT_NEAR(microseconds("collective", {floats(1000)}, machine.devices, machine),
              5 + 2 * (5 + 2 * 12) + sums + assignment, 1e-6);
}

// Tensors of 64 Ki floats. The collective overwrites what it reads, which counts twice, and both
// workers share it. In the other strategies one worker adds alone, over one of the tensors that it
// reads. So there is nothing left to assign to that one. The other worker assigns the other tensor,
// after it has seen the sum.
TEST(Prediction, WorkersShareMemoryAndLargeCollectives) {
  const MachineDescription machine = machine_of_workers(2);
  constexpr double kBytes = 262144;
  EXPECT_NEAR(microseconds("collective", {floats(65536)}, machine.devices, machine),
              1 + 0.5 + 0.125 + 4 * kBytes / 16e3, 1e-6);
  EXPECT_NEAR(microseconds("naive", {floats(65536)}, machine.devices, machine),
              1 + 0.5 + 3 * kBytes / 10e3 + 0.75 + 3 * kBytes / 10e3, 1e-6);
  // Workers do not share small collectives.
  EXPECT_NEAR(microseconds("collective", {floats(1024)}, machine.devices, machine),
              1 + 0.5 + 4 * 4096 / 10e3, 1e-6);
}

// On one worker a sum of two is made in one of them, then assigned to the other one, which that
// launch has not read.
TEST(Prediction, WritingCostsLessWhereTheLaunchHasRead) {
  MachineDescription machine = machine_of_workers(2);
  machine.bandwidth[0].write = 3;
  machine.bandwidth[0].rewrite = 0.5;
  constexpr double kBytes = 262144;
  EXPECT_NEAR(microseconds("collective", {floats(65536)}, machine.devices, machine),
              1 + 0.5 + 0.125 + 2 * 1.5 * kBytes / 16e3, 1e-6);
  machine.workers = 1;
  EXPECT_NEAR(microseconds("naive", {floats(65536)}, machine.devices, machine),
              1 + 3 * 0.5 + (2 + 0.5 + 1 + 3) * kBytes / 10e3, 1e-6);
}

// Bytes that the other worker wrote take 0.15 ns more each. They are its variable, which the sum
// reads, and the sum, which it assigns. As a whole step, one worker does this better.
TEST(Prediction, WhatAnotherWorkerWroteIsSlowerToRead) {
  MachineDescription machine = machine_of_workers(2);
  machine.bandwidth[0].other_gbps = 4;
  constexpr double kBytes = 262144;
  const double fetch = kBytes * 0.15e-3;
  EXPECT_NEAR(microseconds("naive", {floats(65536)}, machine.devices, machine),
              1 + 0.5 + fetch + 3 * kBytes / 10e3 + 0.75 + fetch + 3 * kBytes / 10e3, 1e-6);
  EXPECT_NEAR(1e6 * predict_reduction(*make_strategy("naive"), {floats(65536)}, machine.devices,
                                      machine, {Reduction::kSum}, PlanExtent::kWholeStep),
              1 + 3 * 0.5 + 6 * kBytes / 10e3, 1e-6);
}

// The update of a training step finds the workers awake.
TEST(Prediction, AWholeStepWakesTheWorkersThatItRunsOn) {
  MachineDescription machine = machine_of_workers(2);
  machine.wake_us = 3;
  const auto whole = [&](std::int64_t elements) {
    return 1e6 * predict_reduction(*make_strategy("collective"), {floats(elements)},
                                   machine.devices, machine, {Reduction::kSum},
                                   PlanExtent::kWholeStep);
  };
  const auto part = [&](std::int64_t elements) {
    return microseconds("collective", {floats(elements)}, machine.devices, machine);
  };
  EXPECT_NEAR(whole(16 << 20), part(16 << 20) + 3, 1e-6);
  EXPECT_NEAR(whole(1024), part(1024), 1e-6);  // on one worker
}

// Two collectives on two workers. Each gets half of the bandwidth of both together; the longer one
// goes on alone.
TEST(Prediction, WorkersThatAreBusyTogetherAreSlower) {
  const MachineDescription machine = machine_of_workers(2);
  EXPECT_NEAR(microseconds("collective", {floats(1000), floats(1000)}, machine.devices, machine),
              1 + 0.5 + 2 * 16000 / 16e3, 1e-6);
  EXPECT_NEAR(microseconds("collective", {floats(1000), floats(2000)}, machine.devices, machine),
              1 + 0.5 + 2 * 16000 / 16e3 + 16000 / 10e3, 1e-6);
}

// Two workers have two of four devices each, and collectives take turns on the devices.
TEST(Prediction, DevicesAreSharedOutToWorkersAsInAStep) {
  const MachineDescription machine = machine_of_workers(4);
  const std::vector<TensorType> four(4, floats(1000));
  EXPECT_NEAR(microseconds("collective", four, machine.devices, machine),
              1 + 2 * 0.5 + 4 * 32000 / 16e3, 1e-6);
}

// The tensors have a TiB on each device.
TEST(Prediction, AllocatesNothing) {
  const MachineDescription machine = machine_of_workers(2);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    EXPECT_GT(
        predict_reduction(*make_strategy("collective"),
                          {{{(1LL << 40) / static_cast<std::int64_t>(size_of(dtype))}, dtype}},
                          machine.devices, machine, {Reduction::kSum}),
        1);
}

TEST(Prediction, NamesADeviceThatTheMachineLacks) {
  MachineDescription machine = linked(2);
  try {
    microseconds("naive", {floats(8)}, local_devices("GPU", 3), machine);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("GPU:2"));
  }
}

MachineDescription described(const char* name) {
  const std::vector<std::byte> bytes =
      local_file_system().read(cat(BELFRY_SOURCE_DIR, "/docs/links/", name, ".json"));
  return parse_machine(
      JsonValue::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

// On a DGX-1 hierarchical and halving_doubling keep to NVLink: the first has fewer steps, the
// second fewer bytes. Over slow links between all devices, the strategy with the fewest steps wins
// for small tensors. For large ones the strategy that sends fragments everywhere wins. Workers in
// one memory choose a strategy whose work they share.
TEST(Choice, DependsOnTheMachineAsThisTableSays) {
  // Named here, so that the answers stay those by hand, whatever strategies there are. Without
  // colocate, which sums as naive does and is for parameter servers.
  const std::vector<std::string> names{
      "collective", "halving_doubling", "hierarchical", "naive", "naive_cpu", "ring", "shuffle"};
  const struct {
    const char* machine;
    std::int64_t elements;
    const char* chosen;
  } table[] = {
      {"dgx1", 256, "hierarchical"},         {"dgx1", 25557032, "halving_doubling"},
      {"slow_links", 256, "naive"},          {"slow_links", 16384, "shuffle"},
      {"slow_links", 1048576, "collective"}, {"slow_links", 25557032, "collective"},
  };
  for (const auto& [machine, elements, chosen] : table)
    EXPECT_EQ(
        choose_strategy(names, {floats(elements)}, local_devices("GPU", 8), described(machine))
            .best()
            .strategy,
        chosen)
        << machine << ", " << elements;
  EXPECT_EQ(
      choose_strategy(names, {floats(1000000)}, local_devices("CPU", 4), machine_of_workers(4))
          .best()
          .strategy,
      "collective");
}

TEST(Choice, ListsAllAndSaysWhyOneWasTaken) {
  const StrategyChoice choice = choose_strategy(
      {"hierarchical", "collective", "naive"}, {floats(65536)}, local_devices("CPU", 3),
      machine_of_workers(3), {.any = true, .reduction = Reduction::kSum});
  ASSERT_EQ(choice.predictions.size(), 3u);
  EXPECT_EQ(choice.best().strategy, "collective");
  EXPECT_TRUE(choice.best().canonical);
  EXPECT_THAT(choice.str(), HasSubstr("  hierarchical       hierarchical needs an even"));
  EXPECT_THAT(choice.str(), HasSubstr("\nauto: collective, predicted 0.0999"));
  EXPECT_THAT(choice.str(), HasSubstr("; naive, the next, takes "));
}

// This strategy sums as fast as naive, and does not claim to be canonical.
class Loose final : public Strategy {
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const override {
    DeviceScope on(grads.graph(), grads.device(0));
    return std::vector(static_cast<std::size_t>(grads.towers()),
                       std::vector<Output>{grads.at(0, 0).value + grads.at(1, 0).value});
  }
};
const StrategyRegistration loose{"test_loose", [] { return std::make_unique<Loose>(); }};

TEST(Choice, TakesCanonicalStrategiesUnlessAnyMayServe) {
  const std::vector<std::string> names{"test_loose", "naive"};
  const auto choose = [&](bool any) {
    return choose_strategy(names, {floats(8)}, local_devices("CPU", 2), machine_of_workers(2),
                           {.any = any});
  };
  EXPECT_EQ(choose(false).best().strategy, "naive");
  EXPECT_THAT(choose(false).str(), HasSubstr("test_loose         left out (not canonical)"));
  EXPECT_EQ(choose(true).best().strategy, "test_loose");
}

// Two tensors of 1000 bytes over one link. In separate buckets each costs an exchange.
TEST(Choice, TriesEachBucketSizeWithStrategiesThatHaveANodePerBucket) {
  const MachineDescription machine = linked(2);
  const StrategyChoice choice =
      choose_strategy({"collective", "hierarchical"}, {floats(250), floats(250)}, machine.devices,
                      machine, {.buckets = {0.001, 0, 1}});
  ASSERT_EQ(choice.predictions.size(), 5u);
  EXPECT_EQ(choice.best().strategy, "collective");
  EXPECT_EQ(choice.best().bucket_mb, 1);
  EXPECT_THAT(choice.str(), HasSubstr("  collective, 0.001 MiB"));
  EXPECT_THAT(choice.str(), HasSubstr("  hierarchical, 0.001 MiB"));
  EXPECT_THAT(choice.str(), HasSubstr("  hierarchical  "));
  EXPECT_THAT(choice.str(), HasSubstr("auto: collective, 1 MiB, predicted "));
}

TEST(Choice, TakesTheFirstSizeOfThoseThatMakeNoDifference) {
  const MachineDescription machine = linked(2);
  for (const std::vector<double>& buckets : {std::vector<double>{4, 1, 16}, {16, 4, 1}})
    EXPECT_EQ(choose_strategy({"collective"}, {floats(250)}, machine.devices, machine,
                              {.buckets = buckets})
                  .best()
                  .bucket_mb,
              buckets[0]);
}

// Training may pack gradients first: one exchange instead of two.
TEST(Choice, PredictsGradientsAsTheyArePacked) {
  const MachineDescription machine = linked(2);
  const std::vector<TensorType> two{floats(2000), floats(2000)};
  const auto choose = [&](ChoiceOptions options) {
    return choose_strategy({"collective"}, two, machine.devices, machine, options).best();
  };
  const Prediction packs = choose({.packing = {.parts = 1}});
  EXPECT_NE(packs.seconds, choose({}).seconds);
}

TEST(Choice, FailsWithAllReasonsWhereNothingServes) {
  try {
    choose_strategy({"hierarchical"}, {floats(8)}, local_devices("CPU", 3), machine_of_workers(3),
                    {.any = true});
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("no strategy can serve 3 devices"));
    EXPECT_THAT(error.what(), HasSubstr("even"));
  }
}

}  // namespace choice_test
}  // namespace belfry
