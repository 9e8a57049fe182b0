#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace control_dependencies_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST_F(ControlDependenciesTest, OfScopesOutsideDoNotCountAgainInside) {
  ControlDependencies outer(graph, {&a.node()});
  const Output x = named("x");
  ControlDependencies inner(graph, {&a.node(), &b.node()});
  EXPECT_THAT(waits(identity(x)), ElementsAre("b"));  // a comes with x
  EXPECT_THAT(waits(identity(a)), ElementsAre("b"));
  EXPECT_THAT(waits(named("n")), ElementsAre("a", "b"));
  ControlDependencies none(graph, nullptr);
  ControlDependencies again(graph, {&b.node()});
  EXPECT_THAT(waits(identity(x)), ElementsAre("b"));
}

TEST_F(ControlDependenciesTest, TakeNodesOutputsAndVariables) {
  const Variable v = variable(graph, "v", {}, {.initializer = init::zeros()});
  {
    ControlDependencies scope(graph, {&a.node(), b, b, v});
    EXPECT_THAT(waits(named("x")), ElementsAre("a", "b", "v"));
  }
  const std::vector<Output> outputs{a, b};
  ControlDependencies scope(graph, outputs);
  EXPECT_THAT(waits(named("y")), ElementsAre("a", "b"));
  EXPECT_THROW(ControlDependencies empty(graph, {Output()}), InvalidArgument);
  EXPECT_THROW(ControlDependencies null(graph, {static_cast<Node*>(nullptr)}), InvalidArgument);
}

TEST_F(ControlDependenciesTest, OnAVariableMayBeRun) {
  const Variable v = variable(graph, "v", {}, {.initializer = init::zeros()});
  ControlDependencies scope(graph, {v});
  const Output x = fill(graph, {}, 7);
  Session session(graph);
  EXPECT_EQ(session.run(x).item<float>(), 7);
}

TEST_F(ControlDependenciesTest, AddNothingToNodesMadeOutside) {
  ControlDependencies scope(graph, {&a.node()});
  EXPECT_THAT(waits(c), IsEmpty());
}

class GroupTest : public ControlDependenciesTest {
 protected:
  Output on(const char* device, const char* name) {
    DeviceScope scope(graph, device);
    return named(name);
  }
  Output d = on("/cpu:1", "d"), e = on("/cpu:2", "e"), ten = on("/cpu:10", "ten");
};

TEST_F(GroupTest, OnOneDeviceIsThereWhateverTheScopes) {
  DeviceScope elsewhere(graph, "/job:ps/cpu:7");
  Node& one = group(graph, {d, d});
  EXPECT_EQ(one.name(), "group_deps");
  EXPECT_EQ(one.device().str(), "/device:CPU:1");
  EXPECT_THAT(waits(one.output()), ElementsAre("d"));
}

TEST_F(GroupTest, JoinsTheAnchorsOfColocation) {
  ColocateWith beside(e);
  Node& one = group(graph, {d});
  EXPECT_EQ(one.device().str(), "/device:CPU:2");
  EXPECT_THAT(names_of(one.request().colocation), ElementsAre("e"));
  Node& root = group(graph, {a, d, ten});
  ASSERT_EQ(root.control_inputs().size(), 3u);
  for (const Node* part :
       {&root, root.control_inputs()[0], root.control_inputs()[1], root.control_inputs()[2]}) {
    EXPECT_EQ(part->device().str(), "/device:CPU:2") << part->name();
    EXPECT_THAT(names_of(part->request().colocation), ElementsAre("e")) << part->name();
  }
  DeviceScope inside(graph, "/cpu:7");
  ColocateWith free(a);  // which asks for no device
  Node& both = group(graph, {d});
  EXPECT_EQ(both.device().str(), "/device:CPU:2");
  EXPECT_THAT(names_of(both.request().colocation), ElementsAre("a", "e"));
}

TEST_F(GroupTest, KeepsItsDeviceBesideAnAnchorWithoutOne) {
  DeviceScope elsewhere(graph, "/cpu:7");
  ColocateWith beside(a);
  Node& one = group(graph, {d});
  EXPECT_EQ(one.device().str(), "/device:CPU:1");
  EXPECT_THAT(names_of(one.request().colocation), ElementsAre("a"));
}

TEST_F(GroupTest, WithoutDevicesTheScopesInForceDecide) {
  DeviceScope scope(graph, "/cpu:7");
  Node& plain = group(graph, {a, b}, "all");
  EXPECT_EQ(plain.name(), "all");
  EXPECT_EQ(plain.device().str(), "/device:CPU:7");
  EXPECT_THAT(waits(plain.output()), ElementsAre("a", "b"));
  Node& nothing = group(graph, std::span<Node* const>());
  EXPECT_THAT(nothing.control_inputs(), IsEmpty());
}

TEST_F(GroupTest, OnSeveralDevicesHasANodePerDeviceAndARoot) {
  DeviceScope scope(graph, "/cpu:7");
  Node& root = group(graph, {ten, e, d, a, d});
  EXPECT_EQ(root.name(), "group_deps");
  EXPECT_EQ(root.device().str(), "/device:CPU:7");
  // The group without a device comes first, then devices in numeric order. TensorFlow sorts text
  // (CPU:10 before CPU:2).
  EXPECT_THAT(waits(root.output()), ElementsAre("group_deps/NoOp", "group_deps/NoOp_1",
                                                "group_deps/NoOp_2", "group_deps/NoOp_3"));
  std::vector<std::string> devices, waited;
  for (Node* part : root.control_inputs()) {
    devices.push_back(part->device().str());
    waited.push_back(join(waits(part->output())));
  }
  EXPECT_THAT(devices,
              ElementsAre("/device:CPU:7", "/device:CPU:1", "/device:CPU:2", "/device:CPU:10"));
  EXPECT_THAT(waited, ElementsAre("a", "d", "e", "ten"));
}

TEST_F(GroupTest, OfATupleGatesEveryOutput) {
  const Output list[] = {d, Output(), e};
  Node* const also[] = {&a.node()};
  const std::vector<Output> gated = tuple_of(list, also);
  ASSERT_EQ(gated.size(), 3u);
  EXPECT_FALSE(gated[1]);
  EXPECT_EQ(gated[0].name(), "tuple/control_dependency");
  EXPECT_EQ(gated[2].name(), "tuple/control_dependency_1");
  EXPECT_EQ(gated[0].device().str(), "/device:CPU:1");
  EXPECT_THAT(names_of(gated[0].node().request().colocation), ElementsAre("d"));
  EXPECT_THAT(names_of(gated[2].node().request().colocation), ElementsAre("e"));
  for (const Output& output : {gated[0], gated[2]})
    EXPECT_THAT(waits(output), ElementsAre("tuple/group_deps"));
  const Node& gate = *gated[0].node().control_inputs()[0];
  EXPECT_EQ(gate.device().str(), "");
  EXPECT_THAT(waits(gate.output()), ElementsAre("tuple/group_deps/NoOp", "tuple/group_deps/NoOp_1",
                                                "tuple/group_deps/NoOp_2"));
  const Output none[] = {Output()};
  EXPECT_THAT(message_of<InvalidArgument>([&] { tuple_of(none); }),
              HasSubstr("must have at least one output"));
}

TEST_F(GroupTest, OfATupleKeepsValues) {
  const Output list[] = {fill(graph, {}, 3), fill(graph, {}, 4)};
  const std::vector<Output> gated = tuple_of(list);
  Session session(graph);
  EXPECT_EQ(session.run(gated[0]).item<float>(), 3);
  EXPECT_EQ(session.run(gated[1]).item<float>(), 4);
}

}  // namespace control_dependencies_test
}  // namespace belfry
