#include "belfry/framework/scopes.h"

#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string placed(Graph& graph) { return fill(graph, {}, 0).device().str(); }

struct FixedSetter final : DeviceSetter {
  explicit FixedSetter(std::string device) : result(std::move(device)) {}
  DeviceSpec place(const Node& node) override {
    seen.push_back(node.device().str());
    types.emplace_back(node.type());
    return result;
  }
  std::string str() const override { return "FixedSetter"; }
  std::string result;
  std::vector<std::string> seen, types;
};

TEST(DeviceScope, OuterSpecsFillInWhatInnerOnesLeaveOpen) {
  Graph graph;
  DeviceScope outer(graph, "/job:worker/cpu:3");
  EXPECT_EQ(placed(graph), "/job:worker/device:CPU:3");
  {
    DeviceScope inner(graph, "/cpu:1");
    EXPECT_EQ(placed(graph), "/job:worker/device:CPU:1");
    DeviceScope innermost(graph, "/task:7");
    EXPECT_EQ(placed(graph), "/job:worker/task:7/device:CPU:1");
  }
  EXPECT_EQ(placed(graph), "/job:worker/device:CPU:3");
}

TEST(DeviceScope, AnEmptySpecChangesNothing) {
  Graph graph;
  DeviceScope outer(graph, "/cpu:1");
  DeviceScope empty(graph, "");
  EXPECT_EQ(placed(graph), "/device:CPU:1");
}

TEST(DeviceScope, NoDeviceStopsWhatIsOutsideOnly) {
  Graph graph;
  DeviceScope outer(graph, "/job:worker/cpu:1");
  DeviceScope none(graph, NoDevice{});
  EXPECT_EQ(placed(graph), "");
  DeviceScope inner(graph, "/cpu:2");
  EXPECT_EQ(placed(graph), "/device:CPU:2");
}

TEST(DeviceScope, ASetterSeesAndReplacesWhatInnerScopesSet) {
  Graph graph;
  FixedSetter setter("/cpu:5");
  DeviceScope outer(graph, "/job:worker/cpu:9");
  DeviceScope with_setter(graph, setter);
  DeviceScope inner(graph, "/task:3/cpu:1");
  EXPECT_EQ(placed(graph), "/job:worker/device:CPU:5");  // the outer spec still fills in
  EXPECT_THAT(setter.seen, ElementsAre("/task:3/device:CPU:1"));
  EXPECT_THAT(setter.types, ElementsAre("Fill"));
}

TEST(DeviceScope, AFunctionMayLookAtTheNode) {
  Graph graph;
  DeviceScope scope(graph, [](const Node& node) {
    return DeviceSpec(node.output_type(0).shape.rank() == 0 ? "/cpu:0" : "/cpu:1");
  });
  EXPECT_EQ(fill(graph, {}, 0).device().str(), "/device:CPU:0");
  EXPECT_EQ(fill(graph, {3}, 0).device().str(), "/device:CPU:1");
  DeviceScope clear(graph, [](const Node&) { return DeviceSpec(); });
  EXPECT_EQ(fill(graph, {}, 0).device().str(), "/device:CPU:0");  // the outer one decides again
}

TEST(DeviceScope, ReasonsAreKeptInOrderOfApplication) {
  Graph graph;
  FixedSetter setter("/cpu:5");
  DeviceScope outer(graph, "/cpu:0");
  DeviceScope inner(graph, setter);
  const Output x = fill(graph, {}, 0);
  const auto reasons = x.node().device_reasons();
  ASSERT_EQ(reasons.size(), 2u);
  EXPECT_EQ(reasons[0].what, "setter FixedSetter");
  EXPECT_EQ(reasons[1].what, "scope /device:CPU:0");
  EXPECT_THAT(reasons[1].site.str(), ::testing::StartsWith("scopes_test.cc:"));
}

TEST(DeviceScope, EndsWhenAnExceptionLeavesIt) {
  Graph graph;
  try {
    DeviceScope scope(graph, "/cpu:1");
    NameScope names(graph, "a");
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(placed(graph), "");
  EXPECT_EQ(graph.scopes().names, "");
}

TEST(ColocateWith, TakesTheDeviceAndSetsScopesAside) {
  Graph graph;
  Output x;
  {
    DeviceScope scope(graph, "/cpu:1");
    x = fill(graph, {}, 0, DType::kF32, "x");
  }
  FixedSetter setter("/cpu:9");
  DeviceScope outer(graph, setter);
  {
    ColocateWith beside(x);
    const Output y = fill(graph, {}, 0, DType::kF32, "y");
    EXPECT_EQ(y.device().str(), "/device:CPU:1");
    EXPECT_THAT(y.node().colocation(), ElementsAre("x"));
    DeviceScope inner(graph, "/task:4");
    EXPECT_EQ(placed(graph), "/task:4/device:CPU:1");
  }
  EXPECT_THAT(setter.seen, IsEmpty());
  EXPECT_EQ(placed(graph), "/device:CPU:9");
}

TEST(ColocateWith, GroupsAreThoseOfTheFirstAnchor) {
  Graph graph;
  const Output x = fill(graph, {}, 0, DType::kF32, "x"), z = fill(graph, {}, 0, DType::kF32, "z");
  Output y;
  {
    ColocateWith beside(x);
    y = fill(graph, {}, 0, DType::kF32, "y");
  }
  ColocateWith beside_z(z);
  ColocateWith beside_y(y);
  EXPECT_THAT(fill(graph, {}, 0).node().colocation(), ElementsAre("x", "z"));
}

TEST(ColocateWith, TheOldestAnchorWithADeviceDecides) {
  Graph graph;
  const Output nowhere = fill(graph, {}, 0);
  const auto on = [&](const char* device) {
    DeviceScope scope(graph, device);
    return fill(graph, {}, 0);
  };
  const Output one = on("/cpu:1"), two = on("/cpu:2");
  ColocateWith a(nowhere);
  ColocateWith b(one);
  ColocateWith c(two);
  EXPECT_EQ(placed(graph), "/device:CPU:1");
}

TEST(ColocateWith, NothingSetsOuterColocationAside) {
  Graph graph;
  DeviceScope scope(graph, "/cpu:1");
  const Output x = fill(graph, {}, 0, DType::kF32, "x");
  ColocateWith beside(x);
  {
    ColocateWith nothing(graph, nullptr);
    const Output y = fill(graph, {}, 0);
    EXPECT_EQ(y.device().str(), "");
    EXPECT_THAT(y.node().colocation(), IsEmpty());
  }
  EXPECT_EQ(placed(graph), "/device:CPU:1");
}

TEST(ColocateWith, WritesGoWhereTheirVariableIsWhateverTheScopes) {
  Graph graph;
  Variable v;
  {
    DeviceScope scope(graph, "/cpu:1");
    v = variable(graph, "v", {}, {.initializer = init::zeros()});
  }
  FixedSetter setter("/cpu:0");
  DeviceScope scope(graph, setter);
  const Output one = fill(graph, {}, 1);
  Node& write = assign(v, one);
  EXPECT_EQ(write.device().str(), "/device:CPU:1");
  EXPECT_THAT(write.colocation(), ElementsAre("v"));
  EXPECT_THAT(setter.types, ElementsAre("Fill"));
}

// Control inputs by name.
std::vector<std::string> waits(const Output& output) {
  std::vector<std::string> names;
  for (const Node* before : output.node().control_inputs()) names.emplace_back(before->name());
  return names;
}

class ControlDependenciesTest : public ::testing::Test {
 protected:
  Output named(const char* name) { return fill(graph, {}, 0, DType::kF32, name); }
  Graph graph;
  Output a = named("a"), b = named("b"), c = named("c");
};

TEST_F(ControlDependenciesTest, AddUp) {
  ControlDependencies outer(graph, {&a.node(), &b.node()});
  EXPECT_THAT(waits(named("x")), ElementsAre("a", "b"));
  {
    ControlDependencies inner(graph, {&b.node(), &c.node()});
    EXPECT_THAT(waits(named("y")), ElementsAre("a", "b", "c"));
  }
  EXPECT_THAT(waits(named("z")), ElementsAre("a", "b"));
}

TEST_F(ControlDependenciesTest, LeaveOutDataInputs) {
  ControlDependencies scope(graph, {&a.node(), &b.node()});
  EXPECT_THAT(waits(identity(a)), ElementsAre("b"));
}

TEST_F(ControlDependenciesTest, AreImpliedByInputsMadeInside) {
  ControlDependencies outer(graph, {&a.node()});
  const Output inside_outer = named("x");
  EXPECT_THAT(waits(identity(inside_outer)), IsEmpty());
  ControlDependencies inner(graph, {&b.node()});
  EXPECT_THAT(waits(identity(inside_outer)), ElementsAre("b"));  // a comes with x, b does not
  EXPECT_THAT(waits(identity(c)), ElementsAre("a", "b"));
  EXPECT_THAT(waits(identity(identity(c))), IsEmpty());
}

TEST_F(ControlDependenciesTest, AreClearedByNull) {
  ControlDependencies outer(graph, {&a.node()});
  Output free;
  {
    ControlDependencies none(graph, nullptr);
    free = named("x");
    EXPECT_THAT(waits(free), IsEmpty());
    ControlDependencies inner(graph, {&b.node()});
    EXPECT_THAT(waits(named("y")), ElementsAre("b"));
  }
  EXPECT_THAT(waits(identity(free)), ElementsAre("a"));  // x was not made inside
}

TEST_F(ControlDependenciesTest, DoNotHoldUpVariables) {
  ControlDependencies outer(graph, {&a.node()});
  const Variable v = variable(graph, "v", {2}, {.initializer = init::uniform(0, 1)});
  EXPECT_THAT(waits(v.ref()), IsEmpty());
  EXPECT_THAT(waits(v.node().variable().initial), IsEmpty());
  EXPECT_THAT(waits(v), IsEmpty());
  EXPECT_THAT(waits(v.read()), ElementsAre("a"));
}

TEST_F(ControlDependenciesTest, OfAGroupWaitForEachDeviceByItself) {
  const auto on = [&](int device) {
    DeviceScope scope(graph, cpu(device));
    return &fill(graph, {}, 0).node();
  };
  Node* const one_device[] = {on(1), on(1)};
  DeviceScope elsewhere(graph, cpu(7));
  EXPECT_EQ(group(graph, one_device).device(), cpu(1));
  Node* const two[] = {on(2), on(1), on(2), &a.node()};
  Node& root = group(graph, two);
  ASSERT_EQ(root.control_inputs().size(), 3u);  // without a device first, then in order
  EXPECT_EQ(root.control_inputs()[0]->device().str(), "");
  EXPECT_EQ(root.control_inputs()[1]->device(), cpu(1));
  EXPECT_EQ(root.control_inputs()[2]->device(), cpu(2));
  EXPECT_EQ(root.control_inputs()[2]->control_inputs().size(), 2u);
}

TEST(SiteScope, NodesNameTheOutermostLine) {
  Graph graph;
  const Site users{"somewhere/model.cc", 41};
  SiteScope outer(graph, users);
  SiteScope inner(graph, Site::here());
  EXPECT_EQ(fill(graph, {}, 0).node().describe(), "Fill 'Fill' (built at model.cc:41)");
}

TEST(SiteScope, EndsWithItsBlock) {
  Graph graph;
  { SiteScope scope(graph, Site{"model.cc", 1}); }
  EXPECT_THAT(fill(graph, {}, 0).node().site().str(), ::testing::StartsWith("scopes_test.cc:"));
}

TEST(ReplicaScope, LogicalNamesLeaveThePrefixOut) {
  Graph graph;
  const Output outside = fill(graph, {}, 0, DType::kF32, "x");
  NameScope names(graph, "tower1");
  ReplicaScope replica(graph, "tower1/", 1);
  const Output inside = fill(graph, {}, 0, DType::kF32, "x");
  EXPECT_EQ(inside.name(), "tower1/x");
  EXPECT_EQ(inside.node().logical_name(), "x");
  EXPECT_EQ(inside.node().replica(), 1);
  EXPECT_EQ(outside.node().logical_name(), "x");
  EXPECT_EQ(outside.node().replica(), 0);
  NameScope root(graph, "");
  EXPECT_EQ(fill(graph, {}, 0, DType::kF32, "y").node().logical_name(), "y");
}

TEST(ReplicaScope, RandomNumbersOfReplicasDifferByShardOnly) {
  const auto key = [](std::uint64_t seed, const char* prefix, int index, const char* name) {
    Graph graph(seed);
    ReplicaScope replica(graph, prefix, index);
    NameScope names(graph, prefix);
    return random_key(random_uniform(graph, {2}, 0, 1, DType::kF32, name).node());
  };
  EXPECT_EQ(key(1, "tower1/", 1, "x"), key(1, "other/", 1, "x"));
  EXPECT_NE(key(1, "tower1/", 1, "x"), key(1, "tower1/", 2, "x"));
  EXPECT_NE(key(1, "tower1/", 1, "x"), key(2, "tower1/", 1, "x"));
  EXPECT_NE(key(1, "tower1/", 1, "x"), key(1, "tower1/", 1, "y"));
}

}  // namespace
}  // namespace belfry
