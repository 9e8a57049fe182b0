// Nodes that pass `fuse` joins with an activation, and nodes that it leaves alone.
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/bias_activation.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/silu.h"
#include "belfry/tests/framework/passes/fused_plan.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace passes_fuse_bias_test {

Output plain_gelu(Output x) { return gelu(x); }
Output plain_silu(Output x) { return silu(x); }
Output plain_relu(Output x) { return relu(x); }

struct Activation {
  const char* name;
  Output (*of)(Output);
};
const Activation kActivations[] = {
    {"Relu", plain_relu}, {"Gelu", plain_gelu}, {"Silu", plain_silu}};

// Two dense layers of x [6, 4], one behind the other.
struct Net {
  Net(const Activation& activation, DType dtype = DType::kF32) {
    x = placeholder(graph, "x", dtype, {6, 4});
    bias = fill(graph, {4}, 0.25, dtype);
    const Output weights = fill(graph, {4, 4}, 0.5, dtype);
    sum = matmul(x, weights) + bias;
    y = activation.of(matmul(activation.of(sum), weights) + bias);
    dx = gradients(y, std::vector{x, bias}, {.initial = {y * y}});
  }
  std::multiset<std::string> ops(Session& session, const std::vector<Fetch>& fetches) const {
    return test::ops_of(*test::prepared(session, fetches, x).plan());
  }

  Graph graph;
  Output x, bias, sum, y;
  std::vector<Output> dx;
};

TEST(FuseBias, TakesTheBiasBeforeAnActivationAndItsGradientBehindThat) {
  for (const Activation& activation : kActivations)
    for (const int shards : {1, 3}) {
      const Net net(activation);
      const std::string name = activation.name;
      Session session(net.graph, {.shards_per_device = shards, .threads = 1});
      const auto ops = net.ops(session, {net.y, net.dx[0], net.dx[1]});
      EXPECT_EQ(ops.count("Bias" + name), 2u) << name;
      EXPECT_EQ(ops.count("Bias" + name + "Grad"), 2u) << name;
      for (const std::string& gone :
           {name, name + "Grad", std::string("Add"), std::string("ReduceSum")})
        EXPECT_EQ(ops.count(gone), 0u) << gone;
    }
}

// The gradient of ReLU reads its output, and that of GELU its input.
TEST(FuseBias, WritesTheSumWhereItIsReadAlone) {
  for (const Activation& activation : kActivations) {
    const Net net(activation);
    Session session(net.graph, {.threads = 1});
    const CompiledStep& step = test::prepared(session, {net.dx[0]}, net.x);
    const bool reads_input = std::string(activation.name) != "Relu";
    for (const PlanNode& node : step.plan()->nodes)
      if (node.op == &kBiasRelu || node.op == &kBiasGelu || node.op == &kBiasSilu) {
        EXPECT_EQ(node.types.size(), reads_input ? 2u : 1u) << activation.name;
      }
  }
}

TEST(FuseBias, LeavesSumsThatAreNoBias) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2, 4});
  const Output column = fill(graph, {2, 1}, 1), scalar = fill(graph, {}, 1);
  Session session(graph, {.threads = 1});
  for (const Output sum : {x + column, x + scalar, x + x}) {
    const auto ops = test::ops_of(*session.prepare({relu(sum)}, {FeedType{x, {2, 4}}}).plan());
    EXPECT_EQ(ops.count("Relu"), 1u);
  }
}

// The sum over one column has another order.
TEST(FuseBias, LeavesGradientsOfOtherSums) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {4, 3, 4}),
               one = placeholder(graph, "one", DType::kF32, {4, 1});
  Session session(graph, {.threads = 1});
  for (const Output sum : {reduce_sum(relu_grad(x, x), {0, 2}), reduce_sum(relu_grad(x, x), {2}),
                           reduce_sum(relu_grad(one, one), {0})}) {
    const auto ops = test::ops_of(
        *session.prepare({sum}, {FeedType{x, {4, 3, 4}}, FeedType{one, {4, 1}}}).plan());
    EXPECT_EQ(ops.count("ReluGrad"), 1u);
  }
}

TEST(FuseBias, ChangesNoBitAndTakesNoMoreMemory) {
  for (const Activation& activation : kActivations)
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16})
      for (const int shards : {1, 3}) {
        const Net net(activation, dtype);
        test::expect_same_when_fused(net.graph, net.x, {net.y, net.sum, net.dx[0], net.dx[1]},
                                     {.shards_per_device = shards, .threads = 1});
        test::expect_same_when_fused(net.graph, net.x, {net.dx[0], net.dx[1]},
                                     {.shards_per_device = shards, .threads = 1});
      }
}

}  // namespace passes_fuse_bias_test
}  // namespace belfry
