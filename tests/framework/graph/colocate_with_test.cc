#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/tests/framework/framework_test_support.h"

// Where a comment says "TensorFlow", version 1.15.5 printed it.
namespace belfry {
namespace colocate_with_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Output on(Graph& graph, const char* device, const char* name = "") {
  DeviceScope scope(graph, device);
  return fill(graph, {}, 0, DType::kF32, name);
}

std::string placed(Graph& graph) { return fill(graph, {}, 0).device().str(); }

TEST(ColocateWith, TakesTheDeviceAndSetsScopesAside) {
  Graph graph;
  const Output x = on(graph, "/cpu:1", "x");
  std::vector<std::string> asked;
  DeviceScope outer(graph, [&](const Node& node) {
    asked.emplace_back(node.name());
    return DeviceSpec("/cpu:9");
  });
  {
    ColocateWith beside(x);
    const Output y = fill(graph, {}, 0, DType::kF32, "y");
    EXPECT_EQ(y.device().str(), "/device:CPU:1");
    EXPECT_THAT(names_of(y.node().request().colocation), ElementsAre("x"));
    // Scopes inside are applied, but the anchor has the last word.
    EXPECT_EQ(on(graph, "/task:4").device().str(), "/device:CPU:1");
    EXPECT_EQ(on(graph, "/cpu:2").device().str(), "/device:CPU:1");
  }
  EXPECT_THAT(asked, IsEmpty());
  EXPECT_EQ(placed(graph), "/device:CPU:9");
}

TEST(ColocateWith, LeavesTheDeviceToScopesInsideIfTheAnchorHasNone) {
  Graph graph;
  const Output x = fill(graph, {}, 0, DType::kF32, "x");
  DeviceScope outer(graph, "/cpu:9");
  ColocateWith beside(x);
  EXPECT_EQ(placed(graph), "");
  const Output w = on(graph, "/cpu:2");
  EXPECT_EQ(w.device().str(), "/device:CPU:2");
  EXPECT_THAT(names_of(w.node().request().colocation), ElementsAre("x"));
}

TEST(ColocateWith, IsAmongTheReasonsWithItsLine) {
  Graph graph;
  const Output x = on(graph, "/cpu:1", "x");
  ColocateWith beside(x, SourceLine{"model.cc", 41});
  const auto reasons = on(graph, "/cpu:2").node().request().reasons;
  ASSERT_EQ(reasons.size(), 2u);
  EXPECT_EQ(reasons[0].result.str(), "/device:CPU:2");
  EXPECT_EQ(reasons[1].what(), "colocated with x");
  EXPECT_EQ(reasons[1].site.str(), "model.cc:41");
  EXPECT_EQ(reasons[1].result.str(), "/device:CPU:1");
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
  EXPECT_THAT(names_of(fill(graph, {}, 0).node().request().colocation), ElementsAre("x", "z"));
}

TEST(ColocateWith, TheOldestAnchorWithADeviceDecides) {
  Graph graph;
  const Output a = fill(graph, {}, 0, DType::kF32, "a");
  const Output b = on(graph, "/cpu:1", "b"), d = on(graph, "/cpu:2", "d");
  ColocateWith beside_a(a);
  ColocateWith beside_b(b);
  ColocateWith beside_d(d);
  const Output y = fill(graph, {}, 0);
  EXPECT_EQ(y.device().str(), "/device:CPU:1");
  EXPECT_THAT(names_of(y.node().request().colocation), ElementsAre("a", "b", "d"));
  {
    ColocateWith nothing(graph, nullptr);
    const Output free = fill(graph, {}, 0);
    EXPECT_EQ(free.device().str(), "");
    EXPECT_THAT(names_of(free.node().request().colocation), IsEmpty());
  }
  {
    ColocateWith only(d, OuterColocation::kIgnore);
    const Output z = fill(graph, {}, 0);
    EXPECT_EQ(z.device().str(), "/device:CPU:2");
    EXPECT_THAT(names_of(z.node().request().colocation), ElementsAre("d"));
  }
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
    EXPECT_THAT(names_of(y.node().request().colocation), IsEmpty());
  }
  EXPECT_EQ(placed(graph), "/device:CPU:1");
}

TEST(ColocateWith, WritesGoWhereTheirVariableIsWhateverTheScopes) {
  Graph graph;
  Variable w;
  {
    DeviceScope scope(graph, "/cpu:1");
    w = variable(graph, "w", {}, {.initializer = init::zeros()});
  }
  std::vector<std::string> asked;
  DeviceScope function(graph, [&](const Node& node) {
    asked.emplace_back(node.op().name);
    return DeviceSpec("/cpu:0");
  });
  DeviceScope scope(graph, "/cpu:3");
  const Output one = fill(graph, {}, 1);
  Node& write = assign(w, one);
  EXPECT_EQ(write.device().str(), "/device:CPU:1");
  EXPECT_THAT(names_of(write.request().colocation), ElementsAre("w"));
  EXPECT_THAT(asked, ElementsAre("Fill"));
}

TEST(ColocateWith, WritesJoinTheGroupsOutsideToo) {
  Graph graph;
  const Output x = on(graph, "/cpu:2", "x");
  Variable w;
  {
    DeviceScope scope(graph, "/cpu:1");
    w = variable(graph, "w", {}, {.initializer = init::zeros()});
  }
  const Output one = fill(graph, {}, 1);
  ColocateWith beside(x);
  Node& write = assign(w, one);
  // TensorFlow: as2 '/device:CPU:2' ['loc:@w', 'loc:@x']
  EXPECT_EQ(write.device().str(), "/device:CPU:2");
  EXPECT_THAT(names_of(write.request().colocation), ElementsAre("w", "x"));
}

TEST(ColocateWith, VariablesInsideAreNotShownToSettersOutside) {
  Graph graph;
  const Output x = on(graph, "/cpu:1", "x");
  int asked = 0;
  DeviceScope function(graph, [&](const Node&) {
    ++asked;
    return DeviceSpec("/cpu:9");
  });
  ColocateWith beside(x);
  const Variable v = variable(graph, "v", {2});
  EXPECT_EQ(v.device().str(), "/device:CPU:1");
  EXPECT_THAT(names_of(v.node().request().colocation), ElementsAre("x"));
  EXPECT_EQ(asked, 0);  // TensorFlow asks, and so adds phantom load to setters
}

}  // namespace colocate_with_test
}  // namespace belfry
