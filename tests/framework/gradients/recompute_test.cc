// The backward pass computes activations again: the same bits, in less memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/batch_statistics.h"
#include "belfry/ops/normalization/fused_batch_norm.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/tanh.h"

namespace belfry {
namespace recompute_test {

using testing::UnorderedElementsAre;

TEST(RecomputeScope, IsTheScopeThatANodeIsBelow) {
  const std::vector<std::string> scopes{"block1", "group*/block*", "stem"};
  EXPECT_EQ(recompute_scope("block1/fc/MatMul", scopes), "block1");
  EXPECT_EQ(recompute_scope("block10/fc/MatMul", scopes), "");
  EXPECT_EQ(recompute_scope("group2/block0/conv1/Conv2d", scopes), "group2/block0");
  EXPECT_EQ(recompute_scope("group2/Relu", scopes), "");
  EXPECT_EQ(recompute_scope("stem", scopes), "");  // a node, not a scope
  EXPECT_EQ(recompute_scope("stem/Relu", scopes), "stem");
  EXPECT_EQ(recompute_scope("stem/Relu", {}), "");
}

TEST(RecomputeScope, HasStarsAnywhereInItsParts) {
  const std::vector<std::string> scopes{"*/fc*", "*_mlp", "b*o*k"};
  EXPECT_EQ(recompute_scope("block3/fc1/MatMul", scopes), "block3/fc1");
  EXPECT_EQ(recompute_scope("fc1/MatMul", scopes), "");
  EXPECT_EQ(recompute_scope("small_mlp/Relu", scopes), "small_mlp");
  EXPECT_EQ(recompute_scope("small_mlps/Relu", scopes), "");
  EXPECT_EQ(recompute_scope("block/Relu", scopes), "block");
  EXPECT_EQ(recompute_scope("bk/Relu", scopes), "");
}

constexpr int kBlocks = 4;

// Blocks of a product, tanh three times, and dropout.
struct Net {
  Graph graph{7};
  Output x = placeholder(graph, "x", DType::kF32, {64, 32});
  std::vector<Output> gradients_of;
  std::vector<Variable> weights;

  explicit Net(std::vector<std::string> recompute) {
    Output y = x;
    for (int b = 0; b < kBlocks; ++b) {
      const NameScope block(graph, cat("block", b));
      weights.push_back(variable(graph, cat("w", b), {32, 32}));
      y = matmul(y, weights.back());
      for (int i = 0; i < 3; ++i) y = tanh(y);
      y = dropout(y, 0.25);
    }
    gradients_of = gradients(reduce_mean(y), weights, {.recompute = std::move(recompute)});
  }
};

std::vector<Tensor> run(const std::vector<std::string>& recompute) {
  Net net(recompute);
  Session session(net.graph);
  Tensor x({64, 32}, DType::kF32);
  std::fill_n(x.mutable_data<float>().begin(), x.elements(), 0.5f);
  const std::vector<Fetch> fetches(net.gradients_of.begin(), net.gradients_of.end());
  const std::vector<FeedValue> feeds{{net.x, x}};
  std::vector<Tensor> results;
  for (int step = 0; step < 2; ++step)
    for (const Tensor& value : session.run(fetches, feeds)) results.push_back(value);
  return results;
}

TEST(Recompute, GivesTheSameBitsWithDropoutToo) {
  const std::vector<Tensor> kept = run({});
  ASSERT_EQ(kept.size(), 2U * kBlocks);
  for (const std::vector<std::string>& scopes :
       {std::vector<std::string>{"block*"}, {"block1", "block2"}}) {
    const std::vector<Tensor> again = run(scopes);
    for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(again[i] == kept[i]) << i;
  }
}

std::int64_t peak(const std::vector<std::string>& recompute) {
  Net net(recompute);
  Session session(net.graph, {.dry_run = true});
  std::vector<Node*> all;
  for (const Output& gradient : net.gradients_of) all.push_back(&gradient.node());
  session.prepare({group(net.graph, all)}, {{net.x, net.x.shape()}});
  return session.device_use()[0].peak_bytes;
}

// Each block frees the results of tanh and the input of dropout, and keeps its last output.
TEST(Recompute, KeepsLessInMemory) {
  constexpr std::int64_t kActivation = 64 * 32 * 4;
  const std::int64_t kept = peak({}), again = peak({"block*"});
  EXPECT_LE(again, kept - 5 * kActivation);
  EXPECT_LE(again, peak({"block1"}));
}

// Copies of a block wait until the backward pass has come to the block's end.
TEST(Recompute, WaitsForTheGradientOfItsScope) {
  Net net({"block*"});
  const std::vector<Node*> again = net.graph.nodes(kRecomputed);
  ASSERT_FALSE(again.empty());
  for (const Node* const node : again) {
    const bool is_first = std::ranges::none_of(node->inputs(), [&](const Output& input) {
      return std::ranges::find(again, &input.node()) != again.end();
    });
    EXPECT_EQ(node->control_inputs().empty(), !is_first) << node->name();
    for (const Node* const before : node->control_inputs())
      EXPECT_NE(before->origin().forward, nullptr) << before->name();
  }
}

TEST(Recompute, CopiesNodesOfTheScopesAlone) {
  Net net({"block2"});
  std::vector<std::string> names;
  for (const Node* const node : net.graph.nodes(kRecomputed)) {
    names.emplace_back(node->origin().forward->name());
    EXPECT_EQ(&node->op(), &node->origin().forward->op());
  }
  EXPECT_THAT(names, UnorderedElementsAre("block2/MatMul", "block2/Tanh", "block2/Tanh_1",
                                          "block2/Tanh_2", "block2/Dropout"));
  EXPECT_TRUE(Net({}).graph.nodes(kRecomputed).empty());
}

// Other scopes use the second Tanh of the block, and the norm. Another tensor leaves as a reshape.
// Moments are small.
TEST(Recompute, MakesNothingAgainThatIsKeptAnyway) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {64, 32});
  const Variable w = variable(graph, "w", {32, 32}), gamma = variable(graph, "gamma", {32});
  const auto in = [&](const char* scope, auto make) {
    const NameScope names(graph, scope);
    return make();
  };
  const Output y = in("block", [&] { return tanh(tanh(matmul(x, w))); });
  const Output norm = in("norm", [&] { return batch_norm_train(tanh(y), gamma, gamma).y; });
  const Output flat = in("flat", [&] { return reshape(tanh(norm), {64 * 32}); });
  gradients(reduce_mean(flat), {w}, {.recompute = {"block", "norm", "flat"}});
  std::vector<std::string> names;
  for (const Node* const node : graph.nodes(kRecomputed))
    names.emplace_back(node->origin().forward->name());
  EXPECT_THAT(names, UnorderedElementsAre("norm/Tanh", "block/Tanh", "block/MatMul"));
}

// A copy waits for the backward pass. The gradient of ReLU fuses with that of the norm, which reads
// the copy.
TEST(Recompute, LeavesFusionsAsTheyAre) {
  const auto fused = [](const std::vector<std::string>& recompute) {
    Graph graph;
    const Output x = placeholder(graph, "x", DType::kF32, {64, 32});
    std::vector<Variable> weights;
    Output y = x;
    for (int layer = 0; layer < 3; ++layer) {
      const NameScope names(graph, cat("layer", layer));
      weights.push_back(variable(graph, cat("w", layer), {32, 32}));
      const Variable gamma = variable(graph, cat("gamma", layer), {32});
      y = batch_norm_train(matmul(y, weights.back()), gamma, gamma).y;
      const NameScope root(graph, "");
      y = relu(y);
    }
    std::vector<Node*> all;
    for (const Output& g : gradients(reduce_mean(y), weights, {.recompute = recompute}))
      all.push_back(&g.node());
    Session session(graph, {.dry_run = true});
    const auto plan = session.prepare({group(graph, all)}, {{x, x.shape()}}).plan();
    return std::ranges::count(plan->nodes, &kFusedBatchNormTrainGrad, &PlanNode::op);
  };
  EXPECT_EQ(fused({}), 3);
  EXPECT_EQ(fused({"layer*"}), 3);
}

// Two towers' parts of a batch norm: one node has the moments of both.
TEST(Recompute, GivesNodesOfSeveralTowersTheCopiesOfEach) {
  Graph graph;
  std::vector<Output> parts;
  std::vector<Variable> weights;
  for (const int tower : {0, 1}) {
    const ReplicaScope replica(graph, cat("tower", tower, "/"), tower, tower + 1);
    const NameScope names(graph, cat("tower", tower, "/block/"));
    const Output x = placeholder(graph, "x", DType::kF32, {64, 32});
    weights.push_back(variable(graph, cat("w", tower), {32, 32}));
    parts.push_back(matmul(x, weights.back()));
  }
  const ReplicaScope replica(graph, "tower0/", 0, 1);
  const NameScope names(graph, "tower0/block/");
  const Moments moments = batch_statistics(parts);
  gradients(reduce_mean(moments.variance), weights, {.recompute = {"block"}});
  const std::vector<Node*> again = graph.nodes(kRecomputed);
  std::vector<std::string> copied;
  for (const Node* const node : again) copied.emplace_back(node->origin().forward->name());
  EXPECT_THAT(copied, UnorderedElementsAre("tower0/block/MatMul", "tower1/block/MatMul"));
  for (std::size_t id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (&node.op() != &kBatchStatisticsGrad) continue;
    EXPECT_NE(std::ranges::find(again, &node.input(0).node()), again.end()) << node.name();
  }
}

}  // namespace recompute_test
}  // namespace belfry
