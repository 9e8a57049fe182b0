#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/scopes.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PlaceTest : public ::testing::Test {
 protected:
  Output on(const char* device, const char* name = "x") {
    DeviceScope scope(graph, device);
    return fill(graph, {2}, 1, DType::kF32, name);
  }

  Plan placed(const std::vector<Fetch>& fetches, bool soft = false) {
    Plan plan;
    prune(plan, fetches, {});
    place(plan,
          {devices, [&](const Node& node) { return &node == fixed ? 2 : -1; }, soft, false, false});
    return plan;
  }
  int device(const Output& output, bool soft = false) {
    return device_of(placed({output.node()}, soft), output);
  }

  Graph graph;
  std::vector<std::unique_ptr<Device>> devices = cpu_devices(3);
  const Node* fixed = nullptr;  // a variable that has memory on cpu:2
};

constexpr char kAll[] =
    "[ /job:localhost/replica:0/task:0/device:CPU:0, /job:localhost/replica:0/task:0/device:CPU:1, "
    "/job:localhost/replica:0/task:0/device:CPU:2 ]";

TEST_F(PlaceTest, HonoursRequestsAndTakesTheFirstDeviceThatFits) {
  EXPECT_EQ(device(on("/cpu:2")), 2);
  EXPECT_EQ(device(on("/cpu")), 0);
  EXPECT_EQ(device(on("/job:localhost/cpu:1")), 1);
  EXPECT_EQ(device(on("")), 0);
}

TEST_F(PlaceTest, NamesADeviceThatDoesNotExistAndThoseThatDo) {
  EXPECT_THAT(message_of<InvalidArgument>([&] { device(on("/cpu:7", "far")); }),
              AllOf(HasSubstr("Cannot assign a device for operation far: node far (defined at "
                              "passes_place_test.cc:"),
                    HasSubstr(cat("was explicitly assigned to /device:CPU:7 but available devices "
                                  "are ",
                                  kAll,
                                  ". Make sure the device specification refers to a "
                                  "valid device."))));
  EXPECT_THAT(message_of<InvalidArgument>([&] { device(on("/gpu:0")); }),
              HasSubstr("The requested device appears to be a GPU"));
  EXPECT_THROW(device(on("/job:ps/cpu:0")), InvalidArgument);
}

TEST_F(PlaceTest, SoftPlacementTakesADeviceThatExists) {
  EXPECT_EQ(device(on("/gpu:1"), true), 0);
  EXPECT_EQ(device(on("/cpu:1"), true), 1);
}

TEST_F(PlaceTest, ColocatedNodesShareADevice) {
  const Output a = on("/cpu:1", "a");
  ColocateWith beside(a);
  EXPECT_EQ(device(fill(graph, {2}, 0)), 1);
}

TEST_F(PlaceTest, APartialRequestDoesNotKeepItsGroupFromAFullOne) {
  {
    const Output a = on("/cpu", "a");
    ColocateWith beside(a);
    DeviceScope scope(graph, "/task:0");
    const Output b = fill(graph, {2}, 0, DType::kF32, "b");
    ColocateWith beside_b(b);
    EXPECT_EQ(device(add_n({a, b})), 0);
  }
  // Both ask for any CPU; a third member asks for cpu:1.
  const Output anchor = on("", "anchor");
  Output any, one;
  {
    ColocateWith group(anchor);
    DeviceScope inner(graph, "/cpu");
    any = fill(graph, {2}, 0, DType::kF32, "any");
  }
  {
    ColocateWith group(anchor);
    DeviceScope inner(graph, "/cpu:1");
    one = fill(graph, {2}, 0, DType::kF32, "one");
  }
  const Plan plan = placed({any.node(), one.node(), anchor.node()});
  for (const Output& output : {any, one, anchor}) EXPECT_EQ(device_of(plan, output), 1);
}

TEST_F(PlaceTest, AGroupHoldsTogetherWithoutItsAnchor) {
  const Output anchor = on("", "anchor");
  Output free, one;
  {
    ColocateWith group(anchor);
    free = fill(graph, {2}, 0, DType::kF32, "free");
    DeviceScope inner(graph, "/cpu:1");
    one = fill(graph, {2}, 0, DType::kF32, "one");
  }
  EXPECT_EQ(device_of(placed({free.node(), one.node()}), free), 1);
}

TEST_F(PlaceTest, NamesTheNodesOfAColocationThatCannotBe) {
  const Output root = on("", "root");
  ColocateWith beside(root);
  const Output anchor = on("/cpu:2", "anchor");
  const Output other = on("/cpu:1", "other");
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                placed({other, anchor});
              }),
              AllOf(HasSubstr("Cannot assign a device for operation other: Could not satisfy "
                              "explicit device specification '/device:CPU:1' because the node "
                              "other (defined at passes_place_test.cc:"),
                    HasSubstr(cat("was colocated with a group of nodes that required incompatible "
                                  "device '",
                                  cpu(2).str(), "'. All available devices ", kAll))));
  EXPECT_EQ(device_of(placed({other, anchor}, true), other), 2);
}

TEST_F(PlaceTest, WritesFollowTheirVariableAndItsMemory) {
  DeviceScope scope(graph, "/cpu");
  const Variable v = variable(graph, "v", {}, {.initializer = init::zeros()});
  Node& write = assign(v, constant(graph, 1));
  EXPECT_EQ(device_of(placed({write}), write.output()), 0);
  fixed = &v.node();
  const Plan plan = placed({write, v});
  EXPECT_EQ(device_of(plan, write.output()), 2);
  EXPECT_EQ(device_of(plan, v), 2);
}

TEST_F(PlaceTest, MemoryOfAVariableConflictsWithAnotherRequest) {
  DeviceScope scope(graph, "/cpu:1");
  const Variable v = variable(graph, "v", {}, {.initializer = init::zeros()});
  fixed = &v.node();
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { placed({v}); }),
      HasSubstr("required incompatible device '/job:localhost/replica:0/task:0/device:CPU:2"));
}

TEST_F(PlaceTest, AliasesAndFetchesAreWhereTheirValueIs) {
  const Output same = identity(on("/cpu:1"));
  const Plan plan = placed({same});
  EXPECT_EQ(device_of(plan, same), 1);
  EXPECT_EQ(plan.nodes.back().fetch, 0);
  EXPECT_EQ(plan.nodes.back().device(), 1);
}

TEST_F(PlaceTest, OutputsOfACollectiveAreWhereItsInputsAre) {
  const Output parts[] = {on("/cpu:1"), on("/cpu:0"), on("/cpu:2")};
  const auto sums = all_reduce(parts);
  const Plan plan = placed({sums[0], sums[1], sums[2]});
  EXPECT_EQ(plan.nodes[static_cast<std::size_t>(planned(plan, kAllReduce))].devices,
            (std::vector{1, 0, 2}));
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(plan.nodes[plan.nodes.size() - 3 + i].device(), (std::vector{1, 0, 2})[i]);
}

}  // namespace
}  // namespace belfry
