// Activations that the backward pass computes again: the same bits, in less memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/reduce.h"
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

// Of each block the results of tanh and the input of dropout go; its last output stays.
TEST(Recompute, KeepsLessInMemory) {
  constexpr std::int64_t kActivation = 64 * 32 * 4;
  const std::int64_t kept = peak({}), again = peak({"block*"});
  EXPECT_LE(again, kept - 5 * kActivation);
  EXPECT_LE(again, peak({"block1"}));
}

// Each block begins when the backward pass has come to its end.
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

}  // namespace recompute_test
}  // namespace belfry
