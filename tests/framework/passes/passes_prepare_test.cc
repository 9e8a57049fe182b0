#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/relu.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace passes_prepare_test {

// A plan of `fetch` on one device, up to the launches.
Plan scheduled(const Output& fetch, const PlanContext& context) {
  Plan plan;
  const Fetch wanted(fetch);
  prune(plan, {&wanted, 1}, {});
  place(plan, context);
  add_transfers(plan, context);
  order_writes(plan);
  schedule(plan, context);
  return plan;
}

class PrepareTest : public testing::Test {
 protected:
  std::vector<std::unique_ptr<Device>> devices = make_devices({});
  Graph graph;
};

TEST_F(PrepareTest, GivesEveryLaunchAKernelForItsShapes) {
  const Output y = relu(fill(graph, {3}, -2));
  const PlanContext context = plan_context(devices, graph);
  Plan plan = scheduled(y, context);
  prepare_kernels(plan, context);
  ASSERT_EQ(plan.launches.size(), 3u);  // fill, relu, the fetch's copy
  float values[3] = {};
  void* const memory = values;
  for (const Launch& launch : plan.launches)
    launch.run(Pointers({&memory, 1}, {&memory, 1}, nullptr, launch.range, 0));
  EXPECT_THAT(values, testing::ElementsAre(0, 0, 0));
}

TEST_F(PrepareTest, AsksForTheScratchMemoryOfTheKernelThatRuns) {
  const Output x = fill(graph, {64, 96}, 1), y = fill(graph, {64, 96}, 1);
  const Output product = matmul(x, y, {.transpose_b = true});
  PlanContext context = plan_context(devices, graph);
  Plan fast = scheduled(product, context);
  prepare_kernels(fast, context);
  context.reference_kernels = true;
  Plan plain = scheduled(product, context);
  prepare_kernels(plain, context);
  for (const Launch& launch : plain.launches) EXPECT_EQ(launch.workspace_bytes, 0);
  for (const Launch& launch : fast.launches) EXPECT_GE(launch.workspace_bytes, 0);
}

}  // namespace passes_prepare_test
}  // namespace belfry
