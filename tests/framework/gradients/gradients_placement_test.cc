// The devices, names and waits of gradients, none of which changes a bit.
#include <bit>
#include <set>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/square.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace gradients_placement_test {

using ::testing::ElementsAre;
using ::testing::StartsWith;

Output times(Output value, double factor) {
  return mul(value, fill(value.graph(), value.shape(), factor));
}

std::vector<Node*> nodes_of(const Graph& graph, const Op& op) {
  std::vector<Node*> found;
  for (std::size_t id = 0; id < graph.size(); ++id)
    if (&graph.node(id).op() == &op) found.push_back(&graph.node(id));
  return found;
}

// The sum of these depends on the order of additions.
constexpr float kFactors[] = {1e8F, 3, 3, -1e8F, 0.7F, 5e7F, -2.3F, -5e7F, 11.9F};

float tree(std::size_t begin, std::size_t end) {
  if (end - begin == 1) return kFactors[begin];
  const std::size_t middle = begin + (end - begin + 1) / 2;
  return tree(begin, middle) + tree(middle, end);
}

// x on cpu:0, used once on each of `devices`; the gradient of the sum of all uses.
struct Uses {
  explicit Uses(const std::vector<int>& devices, bool colocate = true) {
    Output x;
    std::vector<Output> uses;
    {
      DeviceScope on(graph, "/cpu:0");
      x = constant(graph, Tensor(1.0F), "x");
    }
    for (std::size_t i = 0; i < devices.size(); ++i) {
      DeviceScope on(graph, cpu(devices[i]));
      uses.push_back(times(x, kFactors[i]));
    }
    DeviceScope on(graph, "/cpu:0");
    const Output y = add_n(uses);
    first_gradient = graph.size();
    gradient = gradients(y, {x}, {.colocate = colocate})[0];
  }

  // "cpu index: number of inputs" of each AddN of the gradient.
  std::vector<std::string> sums() const {
    std::vector<std::string> result;
    for (std::size_t id = first_gradient; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      if (&node.op() == &kAddN)
        result.push_back(cat(node.device().index.value_or(-1), ": ", node.inputs().size()));
    }
    return result;
  }

  Graph graph;
  std::size_t first_gradient = 0;
  Output gradient;
};

TEST(GradientSums, OnOneDeviceAreOneNodeThere) {
  EXPECT_THAT(Uses({0, 0, 0, 0}).sums(), ElementsAre("0: 4"));
  EXPECT_THAT(Uses({2, 2, 2, 2, 2}).sums(), ElementsAre("2: 5"));
}

// x is on cpu:0. The whole sum is beside it, as TensorFlow adds the partial sums of devices under
// colocate_with(x).
TEST(GradientSums, AreCutWhereDevicesMeetAndEndBesideTheTensor) {
  EXPECT_THAT(Uses({0, 0, 1, 1}).sums(), ElementsAre("0: 2", "1: 2", "0: 2"));
  EXPECT_THAT(Uses({1, 1, 1, 2, 2}).sums(), ElementsAre("1: 3", "2: 2", "0: 2"));
  EXPECT_THAT(Uses({1, 2}).sums(), ElementsAre("0: 2"));
}

TEST(GradientSums, WithinTheWholeOneLieWhereMostOfTheirUsesAre) {
  // Split after two: a tie of 0 and 1 goes to the first.
  EXPECT_THAT(Uses({0, 1, 1}).sums(), ElementsAre("0: 2", "0: 2"));
  EXPECT_THAT(Uses({2, 1, 1, 1, 0, 0}).sums(), ElementsAre("2: 2", "1: 2", "1: 2", "0: 2", "0: 2"));
}

TEST(GradientSums, HaveTheBitsOfTheCanonicalTreeWhereverTheirUsesAre) {
  const std::vector<int> patterns[] = {{0, 0},
                                       {0, 1},
                                       {1, 0, 2},
                                       {0, 0, 0, 0, 0},
                                       {0, 1, 0, 1, 0},
                                       {2, 2, 1, 1, 0, 0, 2},
                                       {0, 0, 0, 0, 0, 0, 0, 0, 0},
                                       {0, 1, 2, 0, 1, 2, 0, 1, 2},
                                       {2, 2, 2, 2, 2, 1, 1, 1, 1}};
  for (const std::vector<int>& devices : patterns)
    for (const bool colocate : {true, false}) {
      const Uses uses(devices, colocate);
      Session session(const_cast<Graph&>(uses.graph), {.device_count = {{"CPU", 3}}});
      const float got = session.run(uses.gradient).item<float>();
      EXPECT_EQ(std::bit_cast<std::uint32_t>(got),
                std::bit_cast<std::uint32_t>(tree(0, devices.size())))
          << devices.size() << " uses: " << got;
    }
  EXPECT_NE(tree(0, 3), kFactors[0] + (kFactors[1] + kFactors[2])) << "the order does not matter";
}

TEST(GradientSums, OfVariablesFollowTheirReaders) {
  Graph graph;
  Variable v;
  {
    DeviceScope on(graph, "/cpu:0");
    v = variable(graph, "v", {}, {.initializer = init::ones()});
  }
  DeviceScope on(graph, "/cpu:1");
  const Output y = add(times(v, 2), times(v, 3));
  const Output g = gradients(y, {&v, 1}, {.colocate = true})[0];
  EXPECT_STREQ(g.node().op().name, "AddN");
  EXPECT_EQ(g.device().str(), "/device:CPU:1");
}

TEST(GradientSums, TakeOutputsOfCollectivesFromTheirDevices) {
  Graph graph;
  std::vector<Output> parts;
  for (int t = 0; t < 2; ++t) {
    DeviceScope on(graph, cpu(t));
    parts.push_back(times(constant(graph, Tensor(1.0F)), t + 2));
  }
  const Output x = parts[1];
  std::vector<Output> sums;
  {
    DeviceScope on(graph, cpu(0));
    sums = all_reduce(parts);
  }
  DeviceScope on(graph, cpu(1));
  const Output y = add(times(sums[1], 5), times(x, 7));
  const Output g = gradients(y, {x}, {.colocate = true})[0];
  EXPECT_STREQ(g.node().op().name, "AddN");
  EXPECT_EQ(g.device(), cpu(1));
  Session session(graph, {.device_count = {{"CPU", 2}}});
  EXPECT_EQ(session.run(g).item<float>(), 12);
}

TEST(GradientSums, OfVeryManyUsesAreOneNode) {
  Graph graph;
  const Output x = constant(graph, Tensor(1.0F));
  Output y = x;
  for (int i = 0; i < 1030; ++i) y = add(y, x);
  const Output g = gradients(y, {x})[0];
  EXPECT_EQ(g.node().inputs().size(), 1031U);
  EXPECT_EQ(Session(graph).run(g).item<float>(), 1031);
}

class GradientPlacementTest : public ::testing::Test {
 protected:
  GradientPlacementTest() {
    {
      DeviceScope on(graph, "/cpu:1");
      h = relu(x);
    }
    DeviceScope on(graph, "/cpu:2");
    y = square(h);
  }

  // Devices of the nodes made since `first`.
  std::set<std::string> devices_since(std::size_t first) const {
    std::set<std::string> result;
    for (std::size_t id = first; id < graph.size(); ++id)
      result.insert(graph.node(id).device().str());
    return result;
  }

  Graph graph;
  Output x = constant(graph, floats({1, -2, 3}), "x"), h, y;
};

TEST_F(GradientPlacementTest, IsThatOfTheForwardNodesWithColocation) {
  DeviceScope elsewhere(graph, "/cpu:3");
  const std::size_t before = graph.size();
  const Output g = gradients(y, {x}, {.colocate = true})[0];
  EXPECT_EQ(g.device().str(), "/device:CPU:1");
  EXPECT_EQ(devices_since(before), (std::set<std::string>{"/device:CPU:1", "/device:CPU:2"}));
  EXPECT_EQ(graph.find("gradients/grad_y").device().str(), "/device:CPU:2");
}

TEST_F(GradientPlacementTest, IsThatOfTheScopesWithout) {
  const std::size_t before = graph.size();
  {
    DeviceScope elsewhere(graph, "/cpu:3");
    gradients(y, {x});
  }
  EXPECT_EQ(devices_since(before), (std::set<std::string>{"/device:CPU:3"}));
  const std::size_t again = graph.size();
  gradients(y, {x});
  EXPECT_EQ(devices_since(again), (std::set<std::string>{""})) << "the placer decides";
}

TEST_F(GradientPlacementTest, OfZerosIsThatOfTheirX) {
  DeviceScope elsewhere(graph, "/cpu:3");
  const Output other =
      gradients(square(x), {h}, {.colocate = true, .unconnected = UnconnectedGradients::kZero})[0];
  EXPECT_EQ(other.device().str(), "/device:CPU:1");
}

TEST_F(GradientPlacementTest, NamesLieInAScopeThatIsMadeUnique) {
  EXPECT_THAT(gradients(y, {x})[0].name(), StartsWith("gradients/Relu_grad/"));
  EXPECT_THAT(gradients(y, {x})[0].name(), StartsWith("gradients_1/Relu_grad/"));
  NameScope outer(graph, "outer");
  EXPECT_THAT(gradients(y, {x})[0].name(), StartsWith("outer/gradients/Relu_grad/"));
  EXPECT_THAT(gradients(y, {x}, {}, "mine")[0].name(), StartsWith("outer/mine/Relu_grad/"));
}

// The two factors of a product on cpu:1 and cpu:2.
class GateTest : public ::testing::Test {
 protected:
  GateTest() {
    {
      DeviceScope on(graph, "/cpu:1");
      a = constant(graph, floats({1, 2}), "a");
    }
    {
      DeviceScope on(graph, "/cpu:2");
      b = constant(graph, floats({3, 5}), "b");
    }
    DeviceScope on(graph, "/cpu:1");
    y = square(mul(a, b));
  }

  std::vector<Output> gated(GradientGate gate) {
    return gradients(y, {a, b}, {.colocate = true, .gate = gate});
  }
  // The nodes that an identity waits for, seen through NoOps.
  static std::set<const Node*> awaited(const Output& identity) {
    std::set<const Node*> result;
    std::vector<const Node*> open(identity.node().control_inputs().begin(),
                                  identity.node().control_inputs().end());
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      if (&node->op() != &kNoOp) {
        result.insert(node);
        continue;
      }
      open.insert(open.end(), node->control_inputs().begin(), node->control_inputs().end());
    }
    return result;
  }
  void expect_values(const std::vector<Output>& g) {
    Session session(graph, {.device_count = {{"CPU", 3}}});
    const auto values = session.run({g[0], g[1]});
    EXPECT_EQ(values[0], floats({18, 100}));  // 2 a b b
    EXPECT_EQ(values[1], floats({6, 40}));    // 2 a a b
  }

  Graph graph;
  Output a, b, y;
};

TEST_F(GateTest, IsOpenByDefault) {
  const auto g = gated(GradientGate::kNone);
  EXPECT_TRUE(nodes_of(graph, kIdentity).empty());
  expect_values(g);
}

TEST_F(GateTest, OfAnOpMakesTheGradientsOfItsInputsAvailableTogether) {
  const auto g = gated(GradientGate::kOp);
  EXPECT_EQ(g[0].name(), "gradients/Mul_grad/tuple/control_dependency");
  EXPECT_EQ(g[1].name(), "gradients/Mul_grad/tuple/control_dependency_1");
  ASSERT_EQ(nodes_of(graph, kIdentity).size(), 2U) << "Square has one input";
  const Output raw[] = {g[0].node().input(0), g[1].node().input(0)};
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(awaited(g[i]), (std::set<const Node*>{&raw[0].node(), &raw[1].node()}));
    EXPECT_EQ(g[i].device(), raw[i].device());
  }
  expect_values(g);
}

TEST_F(GateTest, OfTheGraphMakesAllResultsAvailableTogether) {
  DeviceScope elsewhere(graph, "/cpu:0");
  const Output g[] = {gated(GradientGate::kGraph)[0], gated(GradientGate::kGraph)[1]};
  EXPECT_EQ(g[0].name(), "gradients/tuple/control_dependency");
  EXPECT_EQ(g[0].device().str(), "/device:CPU:1");
  EXPECT_EQ(awaited(g[0]).size(), 2U);
  EXPECT_EQ(graph.find("gradients/tuple/group_deps").device().str(), "/device:CPU:1");
  expect_values({g[0], g[1]});
}

TEST_F(GateTest, LeavesResultsThatDoNotExistEmpty) {
  const Output c = constant(graph, floats({1, 1}));
  const auto g = gradients(y, {c, a}, {.gate = GradientGate::kGraph});
  EXPECT_FALSE(g[0]);
  EXPECT_STREQ(g[1].node().op().name, "Identity");
  EXPECT_FALSE(gradients(y, {c}, {.gate = GradientGate::kGraph})[0]);
}

}  // namespace gradients_placement_test
}  // namespace belfry
