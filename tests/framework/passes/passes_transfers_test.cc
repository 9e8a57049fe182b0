#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/core_ops/transfer.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/split.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace passes_transfers_test {

class TransfersTest : public ::testing::Test {
 protected:
  template <class F>
  auto on(int device, const F& f) {
    DeviceScope scope(graph, cpu(device));
    return f();
  }
  Output source(int device) {
    return on(device, [&] { return fill(graph, {2, 3}, 1); });
  }
  Output sum(int device, const std::vector<Output>& parts) {
    return on(device, [&] { return add_n(parts); });
  }
  Plan moved(const std::vector<Fetch>& fetches, const std::vector<FeedType>& feeds = {}) {
    Plan plan;
    prune(plan, fetches, feeds);
    const PlanContext context = plan_context(devices, fetches[0].node->graph());
    place(plan, context);
    add_transfers(plan, context);
    return plan;
  }

  Graph graph;
  std::vector<std::unique_ptr<Device>> devices = cpu_devices(4);
};

TEST_F(TransfersTest, ThereIsOnePerDestinationDevice) {
  const Output x = source(0);
  const Plan plan = moved({sum(1, {x, x}), sum(1, {x, x, x}), sum(2, {x, x}), sum(0, {x, x})});
  ASSERT_EQ(plan.transfers.size(), 2u);
  for (const TransferRecord& transfer : plan.transfers) {
    EXPECT_EQ(transfer.from, 0);
    EXPECT_EQ(transfer.bytes, 24);
    EXPECT_EQ(transfer.name, "Fill");
  }
  EXPECT_EQ(plan.transfers[0].to, 1);
  EXPECT_EQ(plan.transfers[1].to, 2);
}

TEST_F(TransfersTest, EachOutputTravelsByItself) {
  const auto parts = split(source(0), 3, 1);
  const Plan plan = moved({sum(1, {parts[0], parts[2], parts[2]})});
  ASSERT_EQ(plan.transfers.size(), 2u);
  EXPECT_EQ(plan.transfers[0].bytes, 8);
  EXPECT_EQ(plan.transfers[0].name, "Split");
  EXPECT_EQ(plan.transfers[1].name, "Split:2");
}

TEST_F(TransfersTest, EveryInputIsOnTheDeviceOfItsNodeAfterwards) {
  Output x = source(0);
  for (int i = 1; i < 12; ++i) x = sum(i % 4, {x, source((i * 7) % 4), x});
  const Plan plan = moved({x});
  for (const PlanNode& planned : plan.nodes) {
    if (planned.op == &kTransfer) continue;
    for (const Value& input : planned.inputs)
      EXPECT_EQ(plan.node(input.node).device(), planned.device()) << planned.name();
  }
}

TEST_F(TransfersTest, NodesStayInTopologicalOrder) {
  const Output x = source(0);
  const Plan plan = moved({sum(1, {x, sum(2, {x, x})})});
  for (const NodeIndex n : plan.nodes.indices())
    for (const Value& input : plan.nodes[n].inputs) EXPECT_LT(input.node, n);
}

TEST_F(TransfersTest, AReadStaysWithItsVariableAndItsValueTravels) {
  const Variable v = on(1, [&] {
    return variable(graph, "v", {2}, {.initializer = init::zeros(), .caching_device = cpu(2)});
  });
  const Plan plan = moved({sum(3, {v, v}), sum(2, {v, v})});
  const NodeIndex read = planned(plan, kRead);
  EXPECT_EQ(plan.node(read).device(), 1);
  ASSERT_EQ(plan.transfers.size(), 2u);  // to the cache, and from the cache to the reader
  EXPECT_EQ(plan.transfers[0].from, 1);
  EXPECT_EQ(plan.transfers[0].to, 2);
  EXPECT_EQ(plan.transfers[1].from, 2);
  EXPECT_EQ(plan.transfers[1].to, 3);
  for (const TransferRecord& transfer : plan.transfers) EXPECT_EQ(transfer.name, "v/read");
}

TEST_F(TransfersTest, ACopyIsMadeOncePerMemorySpaceAndReportedOncePerDevice) {
  devices[2]->memory_space = devices[3]->memory_space = 1;
  const Output x = source(0);
  const Plan plan = moved({sum(3, {x, x}).node(), sum(2, {x, x}).node(), sum(3, {x, x, x}).node(),
                           sum(1, {x, x}).node()});
  std::vector<const PlanNode*> copies, transfers;
  for (const PlanNode& planned : plan.nodes) {
    if (planned.op == &kCopy && planned.fetch() < 0) copies.push_back(&planned);
    if (planned.op == &kTransfer) transfers.push_back(&planned);
  }
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0]->device(), 3);
  EXPECT_EQ(copies[0]->inputs[0], (Value{planned(plan, x.node()), 0}));
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_EQ(transfers[0]->device(), 2);  // the copy's memory
  EXPECT_EQ(&plan.node(transfers[0]->inputs[0].node), copies[0]);
  EXPECT_EQ(transfers[1]->device(), 1);  // the source's
  EXPECT_EQ(transfers[1]->inputs[0].node, planned(plan, x.node()));
  ASSERT_EQ(plan.transfers.size(), 3u);
  const int to[] = {3, 2, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(plan.transfers[i].from, 0);
    EXPECT_EQ(plan.transfers[i].to, to[i]);
    EXPECT_EQ(plan.transfers[i].bytes, 24);
  }
}

// The whole plan runs on a host, whose kernels reach all memory.
TEST_F(TransfersTest, ACopyIsALaunchOnItsDeviceWithMemoryOfItsOwn) {
  devices[1]->memory_space = 1;
  const Output x = source(0);
  const Plan plan = compiled(devices, {sum(1, {x, x}), sum(0, {x, x})});
  const NodeIndex copy = planned(plan, kCopy);
  ASSERT_TRUE(copy);
  const int launch = launch_of(plan, copy);
  ASSERT_GE(launch, 0);
  EXPECT_EQ(plan.strands[plan.launches[at(launch)].strand].device, 1);
  const BufferIndex original = plan.buffer({planned(plan, x.node()), 0}),
                    copied = plan.buffer({copy, 0});
  EXPECT_NE(original, copied);
  EXPECT_EQ(plan.buffers[original].device, 0);
  EXPECT_EQ(plan.buffers[copied].device, 1);
}

TEST_F(TransfersTest, CollectivesTakeTheirInputsWhereTheyAreAndCountThereAndBack) {
  const Output parts[] = {source(0), source(1), source(2)};
  const auto sums = on(3, [&] { return all_reduce(parts); });
  const Plan alone = moved({sums[0], sums[1], sums[2]});
  for (const PlanNode& node : alone.nodes) EXPECT_NE(node.op, &kTransfer);
  ASSERT_EQ(alone.transfers.size(), 4u);
  for (const int device : {1, 2}) {
    const std::size_t there = 2 * static_cast<std::size_t>(device - 1);
    EXPECT_EQ(alone.transfers[there].from, device);
    EXPECT_EQ(alone.transfers[there].to, 0);
    EXPECT_EQ(alone.transfers[there + 1].from, 0);
    EXPECT_EQ(alone.transfers[there + 1].to, device);
    EXPECT_EQ(alone.transfers[there].name, cat("Fill_", device));
    EXPECT_EQ(alone.transfers[there + 1].name, cat("AllReduce:", device));
  }
  const Plan plan = moved({sum(0, {sums[0], sums[1]})});
  ASSERT_EQ(plan.transfers.size(), 5u);
  EXPECT_EQ(plan.transfers[4].from, 1);
}

TEST_F(TransfersTest, CollectivesCountATensorOncePerDevice) {
  const Output a = source(0), b = source(1), c = source(0);
  const Output parts[] = {a, b, c, b};
  const auto sums = all_reduce(parts);
  const Plan plan = moved({sums[0]});
  ASSERT_EQ(plan.transfers.size(), 2u);  // b to the first device, the sum back
  EXPECT_EQ(plan.transfers[0].from, 1);
  EXPECT_EQ(plan.transfers[0].to, 0);
  EXPECT_EQ(plan.transfers[1].from, 0);
  EXPECT_EQ(plan.transfers[1].to, 1);
}

TEST_F(TransfersTest, ABucketCountsEachOfItsTensors) {
  const std::vector<std::vector<Output>> tensors = {{source(0), source(1)}, {source(1), source(2)}};
  const auto sums = all_reduce_bucket(tensors);
  const Plan plan = moved({sums[0][0], sums[0][1]});
  std::vector<std::pair<int, int>> ways;
  for (const TransferRecord& transfer : plan.transfers)
    ways.emplace_back(transfer.from, transfer.to);
  EXPECT_EQ(ways, (std::vector<std::pair<int, int>>{{1, 0}, {0, 1}, {2, 1}, {1, 2}}));
  EXPECT_EQ(plan.transfers[3].name, "AllReduce:3");
}

TEST_F(TransfersTest, ConstantsAreWhereTheyAreNeededAndFeedsTravel) {
  const Output c = on(0, [&] { return constant(graph, floats({1, 2})); });
  EXPECT_TRUE(moved({sum(1, {c, c})}).transfers.empty());
  const Output x = on(0, [&] { return placeholder(graph, "x", DType::kF32, {kUnknownSize}); });
  const Plan plan = moved({sum(1, {x, x})}, {{x, {100}}});
  ASSERT_EQ(plan.transfers.size(), 1u);
  EXPECT_EQ(plan.transfers[0].bytes, 400);
}

TEST_F(TransfersTest, ControlDependenciesCarryNoBytes) {
  const Output x = source(0);
  ControlDependencies after(graph, {&x.node()});
  const Plan plan = moved({source(1)});
  EXPECT_TRUE(plan.transfers.empty());
}

}  // namespace passes_transfers_test
}  // namespace belfry
