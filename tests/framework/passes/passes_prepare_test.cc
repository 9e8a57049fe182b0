#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/relu.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace passes_prepare_test {

// The launches of a plan of `fetch` on one device, with their kernels.
ExecutionSchedule prepared(const Output& fetch, const PlanContext& context) {
  PlanGraph plan;
  const Fetch wanted(fetch);
  prune(plan, {&wanted, 1}, {});
  place(plan, context);
  add_transfers(plan, context);
  order_writes(plan);
  ExecutionSchedule launches = schedule(plan, context);
  prepare_kernels(plan, launches, context);
  return launches;
}

class PrepareTest : public testing::Test {
 protected:
  std::vector<std::unique_ptr<Device>> devices = make_devices({});
  Graph graph;
};

TEST_F(PrepareTest, GivesEveryLaunchAKernelForItsShapes) {
  const Output y = relu(fill(graph, {3}, -2));
  const PlanContext context = plan_context(devices, graph);
  const ExecutionSchedule plan = prepared(y, context);
  ASSERT_EQ(plan.launches.size(), 3u);  // fill, relu, the fetch's copy
  float values[3] = {};
  void* const memory = values;
  for (const Launch& launch : plan.launches)
    launch.run(KernelPointers({&memory, 1}, {&memory, 1}, nullptr, launch.range, 0));
  EXPECT_THAT(values, testing::ElementsAre(0, 0, 0));
}

TEST_F(PrepareTest, AsksForTheScratchMemoryOfTheKernelThatRuns) {
  const Output x = fill(graph, {64, 96}, 1), y = fill(graph, {64, 96}, 1);
  const Output product = matmul(x, y, {.transpose_b = true});
  PlanContext context = plan_context(devices, graph);
  const ExecutionSchedule fast = prepared(product, context);
  context.options.reference_kernels = true;
  const ExecutionSchedule plain = prepared(product, context);
  for (const Launch& launch : plain.launches) EXPECT_EQ(launch.workspace_bytes, 0);
  for (const Launch& launch : fast.launches) EXPECT_GE(launch.workspace_bytes, 0);
}

}  // namespace passes_prepare_test
}  // namespace belfry
