// Candidates, the two passes, generators, metadata, collectives. Vectors that a test quotes are the
// behaviour of TensorFlow 1.15.5.
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/placement/colocation.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/shape_of.h"
#include "belfry/tests/framework/placement/placement_support.h"

namespace belfry {
namespace passes_place_test {

using ::testing::ElementsAre;

class PlaceTest : public PlacementTest {
 protected:
  PlaceTest() : PlacementTest(4) {}
};

// 2 CPUs, 12 GPUs that do not exist.
class PlaceOnGpusTest : public PlacementTest {
 protected:
  PlaceOnGpusTest() : PlacementTest(2, 12) {}

  std::vector<int> candidates(const Output& output) {
    const PlacementContext seen = known();
    return Colocation(graph, seen).candidates(output.node().id());
  }
};

TEST_F(PlaceTest, HonoursRequestsAndTakesTheFirstDeviceThatFits) {
  EXPECT_EQ(device(on("/cpu:2")), 2);
  EXPECT_EQ(device(on("/cpu")), 0);
  EXPECT_EQ(device(on("/device:CPU:*")), 0);
  EXPECT_EQ(device(on("/job:localhost/cpu:1")), 1);
  EXPECT_EQ(device(on("/task:0")), 0);
  EXPECT_EQ(device(on("")), 0);
}

TEST_F(PlaceOnGpusTest, PrefersGpusToCpusThenCountsUp) {
  EXPECT_THAT(candidates(on("")), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 1));
  EXPECT_THAT(candidates(on("/cpu")), ElementsAre(0, 1));
  EXPECT_THAT(candidates(on("/gpu:1")), ElementsAre(3));
}

// TensorFlow orders by name, which puts GPU:10 before GPU:2 (defect D15). We count.
TEST_F(PlaceOnGpusTest, OrdersDevicesByNumberNotByName) {
  const std::vector<int> all = candidates(on("/gpu"));
  EXPECT_THAT(all, ElementsAre(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13));
  EXPECT_EQ(devices[static_cast<std::size_t>(all[2])]->spec, gpu(2));
  EXPECT_EQ(devices[static_cast<std::size_t>(all[10])]->spec, gpu(10));
}

TEST_F(PlaceOnGpusTest, TakesDevicesWithAKernelOnly) {
  const Output x = host_only(on("/gpu:3"));
  EXPECT_EQ(device(x), 0);
  EXPECT_THAT(candidates(x), ElementsAre(0, 1));
}

// The vector of the seed page: products on GPU:2 and GPU:3, their sum on the CPU.
TEST_F(PlaceOnGpusTest, PlacesTheMixedProgramOfTheSeedPage) {
  std::vector<Output> c;
  for (const char* name : {"/device:GPU:2", "/device:GPU:3"}) {
    DeviceScope scope(graph, name);
    const Output a = constant(graph, {1, 2, 3, 4, 5, 6}, {2, 3}, "a");
    c.push_back(identity(a, "product"));
  }
  DeviceScope scope(graph, "/cpu:0");
  const Output sum = add_n(c);
  const Plan plan = placed({sum.node()});
  EXPECT_EQ(placement_lines(plan, devices),
            "product: (Identity): /job:localhost/replica:0/task:0/device:GPU:2\n"
            "product_1: (Identity): /job:localhost/replica:0/task:0/device:GPU:3\n"
            "AddN: (AddN): /job:localhost/replica:0/task:0/device:CPU:0\n"
            "a: (Const): /job:localhost/replica:0/task:0/device:GPU:2\n"
            "a_1: (Const): /job:localhost/replica:0/task:0/device:GPU:3\n");
}

// c and d have no inputs. Both are used on two devices, so they go to the first. e follows its only
// consumer. An alias without a request goes to the first device too.
TEST_F(PlaceTest, GeneratorsGoWhereTheirConsumersAreIfTheseAgree) {
  const Output c = constant(graph, {1, 2}, {2}, "c"), d = constant(graph, {1, 2}, {2}, "d");
  const Output e = constant(graph, {1, 2}, {2}, "e");
  Output x, y, z;
  {
    DeviceScope scope(graph, "/cpu:2");
    x = add_n({c, d, e, e}, "x");
  }
  {
    DeviceScope scope(graph, "/cpu:3");
    y = identity(d, "y");
  }
  {
    DeviceScope scope(graph, "/cpu:1");
    z = identity(c, "z");
  }
  const Output free = identity(x, "free");
  EXPECT_THAT(devices_of({x, y, z, free, c, d, e}), ElementsAre(2, 3, 1, 0, 0, 0, 2));
  EXPECT_EQ(placement_lines(placed({y, z, free}), devices),
            "x: (AddN): /job:localhost/replica:0/task:0/device:CPU:2\n"
            "y: (Identity): /job:localhost/replica:0/task:0/device:CPU:3\n"
            "z: (Identity): /job:localhost/replica:0/task:0/device:CPU:1\n"
            "free: (Identity): /job:localhost/replica:0/task:0/device:CPU:0\n"
            "c: (Const): /job:localhost/replica:0/task:0/device:CPU:0\n"
            "d: (Const): /job:localhost/replica:0/task:0/device:CPU:0\n"
            "e: (Const): /job:localhost/replica:0/task:0/device:CPU:2\n");
}

TEST_F(PlaceTest, AGeneratorKeepsItsRequestWhereverItIsUsed) {
  const Output c = on("/cpu:1");
  DeviceScope scope(graph, "/cpu:2");
  EXPECT_THAT(devices_of({identity(c), c}), ElementsAre(2, 1));
}

TEST_F(PlaceTest, NodesThatWaitForAGeneratorCountAsConsumers) {
  const Output c = constant(graph, {1, 2}, {2});
  DeviceScope scope(graph, "/cpu:2");
  const Output x = identity(c);
  DeviceScope other(graph, "/cpu:1");
  ControlDependencies after(graph, {&c.node()});
  const Output waiting = identity(x);
  EXPECT_THAT(devices_of({x, waiting, c}), ElementsAre(2, 1, 0));
}

TEST_F(PlaceTest, FedValuesArePlacedAsWhatTheyStandFor) {
  const Output x = placeholder(graph, "x", DType::kF32, {2});
  DeviceScope scope(graph, "/cpu:2");
  const Output y = identity(x);
  EXPECT_EQ(device_of(placed({y}, false, {{x, {2}}}), x), 2);
}

TEST_F(PlaceTest, MetadataOpsGoWhereTheirInputIs) {
  DeviceScope scope(graph, "/cpu:3");
  const Output there = identity(on("/cpu:2"));
  DeviceScope none(graph, NoDevice{});
  EXPECT_EQ(device(shape_of(there)), 3);
  EXPECT_EQ(device(size_of(there)), 3);
  EXPECT_EQ(device(rank_of(there)), 3);
}

TEST_F(PlaceTest, MetadataOpsWithARequestGoWhereTheyWereAskedTo) {
  DeviceScope scope(graph, "/cpu:3");
  const Output there = identity(on("/cpu:2"));
  DeviceScope inner(graph, "/cpu:1");
  EXPECT_EQ(device(shape_of(there)), 1);
}

// In the first pass the input has no device yet.
TEST_F(PlaceTest, AMetadataOpOfAGeneratorGoesToTheFirstDevice) {
  EXPECT_THAT(devices_of({shape_of(on("/cpu:2"))}), ElementsAre(0));
}

TEST_F(PlaceTest, WritesFollowTheirVariableAndItsMemory) {
  DeviceScope scope(graph, "/cpu");
  const Variable v = variable(graph, "v", {}, {.initializer = init::zeros()});
  Node& write = assign(v, constant(graph, 1));
  EXPECT_EQ(device(write.output()), 0);
  fixed = &v.node();
  EXPECT_THAT(devices_of({write.output(), v}), ElementsAre(2, 2));
}

TEST_F(PlaceTest, AVariableThatHasMemoryStaysWhereItIs) {
  DeviceScope scope(graph, "/cpu:1");
  const Variable v = variable(graph, "v", {}, {.initializer = init::zeros()});
  fixed = &v.node();
  EXPECT_EQ(device(v.ref()), 2);
}

// A read is TensorFlow's dereferencing Identity: it has a device of its own.
TEST_F(PlaceTest, ReadsMayBeElsewhereThanTheirVariable) {
  DeviceScope scope(graph, "/cpu:1");
  const Variable v = variable(graph, "v", {});
  const Variable cached = variable(graph, "cached", {}, {.caching_device = "/cpu:3"});
  EXPECT_THAT(devices_of({v.ref(), v, cached.ref(), cached}), ElementsAre(1, 1, 1, 3));
}

TEST_F(PlaceTest, AFetchIsCopiedWhereItsValueIs) {
  DeviceScope scope(graph, "/cpu:1");
  const Output x = identity(on("/cpu:2"));
  const Plan plan = placed({x});
  EXPECT_EQ(plan.nodes.back().fetch(), 0);
  EXPECT_EQ(plan.nodes.back().device(), 1);
  EXPECT_EQ(plan.assignments.size(), 2u);  // fetches are no nodes of the graph
}

TEST_F(PlaceTest, OutputsOfACollectiveAreWhereItsInputsAre) {
  const Output parts[] = {on("/cpu:1"), on("/cpu:0"), on("/cpu:2")};
  const auto sums = all_reduce(parts);
  const Plan plan = placed({sums[0], sums[1], sums[2]});
  EXPECT_EQ(plan.node(planned(plan, kAllReduce)).devices, (std::vector{1, 0, 2}));
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(plan.nodes[plan.nodes.size() - 3 + i].device(), (std::vector{1, 0, 2})[i]);
  EXPECT_TRUE(
      placement_lines(plan, devices)
          .ends_with("AllReduce: (AllReduce): /job:localhost/replica:0/task:0/device:CPU:1\n"
                     "AllReduce: (AllReduce): /job:localhost/replica:0/task:0/device:CPU:0\n"
                     "AllReduce: (AllReduce): /job:localhost/replica:0/task:0/device:CPU:2\n"));
}

TEST_F(PlaceTest, ACollectiveIgnoresARequestAndPullsWhatIsColocatedWithIt) {
  std::vector<Output> parts;
  for (const char* name : {"/cpu:2", "/cpu:1"}) {
    DeviceScope scope(graph, name);
    parts.push_back(identity(fill(graph, {2}, 1)));
  }
  DeviceScope scope(graph, "/gpu:7");  // does not exist
  const auto sums = all_reduce(parts);
  EXPECT_THAT(devices_of({sums[0], sums[1]}), ElementsAre(2, 1));
  DeviceScope none(graph, NoDevice{});
  const auto free = all_reduce(parts);
  ColocateWith beside(free[1]);
  EXPECT_EQ(device(identity(free[1])), 2);
}

TEST_F(PlaceTest, NodesWithoutOutputsHaveADevice) {
  DeviceScope scope(graph, "/cpu:3");
  EXPECT_EQ(device(graph.add(kNoOp, {}).output()), 3);
}

}  // namespace passes_place_test
}  // namespace belfry
