#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/pack_weights.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/tests/framework/passes/random_graph.h"

namespace belfry {
namespace passes_pack_weights_test {

// Two convolutions over a batch, and a step of gradient descent.
struct Net {
  explicit Net(int groups = 1) {
    x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 8, 8, 16});
    const VariableOptions options{.initializer = init::normal(0.1)};
    w = {variable(graph, "w0", {32, 3, 3, 16 / groups}, options),
         variable(graph, "w1", {32, 3, 3, 32 / groups}, options)};
    y = conv2d(relu(conv2d(x, w[0], {.groups = groups})), w[1], {.groups = groups});
    gradient = gradients(reduce_sum(y * y), std::vector<Output>{x, w[0], w[1]});
    update = &assign_sub(w[1], gradient[2] * 1e-3);
  }
  Graph graph;
  Output x, y;
  std::vector<Variable> w;
  std::vector<Output> gradient;
  Node* update;
};

int count(const Plan& plan, const Op& op) {
  return static_cast<int>(std::ranges::count(plan.nodes, &op, &PlanNode::op));
}

Tensor images(std::int64_t count, float first) {
  Tensor x(Shape{count, 8, 8, 16}, DType::kF32);
  for (float& value : x.mutable_data<float>()) value = std::sin(first++);
  return x;
}

bool library() { return kConv2d.packed_form != nullptr; }

TEST(PackWeights, OncePerFormForAllShards) {
  if (!library()) GTEST_SKIP() << "convolutions are not those of a library";
  Net net;
  Session session(net.graph, {.shards_per_device = 4, .threads = 1});
  const Plan plan =
      *session.prepare({net.y, *net.update}, {FeedType{net.x, {8, 8, 8, 16}, 0}}).plan();
  // There is at most one form for each of three users: both forward nodes, and the gradient of the
  // second one's input.
  EXPECT_GE(count(plan, kPackWeights), 1);
  EXPECT_LE(count(plan, kPackWeights), 3);
  for (const PlanNode& node : plan.nodes) {
    if (node.op != &kPackWeights) continue;
    EXPECT_EQ(plan.runs(node), 1);
    EXPECT_TRUE(node.name().ends_with("/packed")) << node.name();
  }
}

TEST(PackWeights, OfOneUseStaysWithTheKernel) {
  Net net;
  Session session(net.graph, {.threads = 1});
  const Plan plan = *session.prepare({net.y}, {FeedType{net.x, {8, 8, 8, 16}, 0}}).plan();
  EXPECT_EQ(count(plan, kPackWeights), 0);
}

// Otherwise the forms of the forward pass would be kept until the backward pass needs them.
TEST(PackWeights, AgainForWhatTheBackwardPassRecomputes) {
  if (!library()) GTEST_SKIP() << "convolutions are not those of a library";
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 8, 8, 16});
  std::vector<Variable> w;
  Output y = x;
  for (const char* const block : {"block0", "block1"}) {
    const NameScope names(graph, block);
    for (int i = 0; i < 2; ++i) {
      w.push_back(variable(graph, cat(block, "/w", i), {16, 3, 3, 16}));
      y = relu(conv2d(y, w.back()));
    }
  }
  const std::vector<Output> gradient =
      gradients(reduce_sum(y * y), w, {.recompute = {"block0", "block1"}});
  std::vector<Node*> all;
  for (const Output& of_variable : gradient) all.push_back(&of_variable.node());
  Session session(graph, {.shards_per_device = 4, .threads = 1});
  const Plan plan = *session.prepare({group(graph, all)}, {FeedType{x, {8, 8, 8, 16}, 0}}).plan();
  const std::set<const Node*> recomputed = recomputed_nodes(plan);
  ASSERT_EQ(recomputed.size(), 4U) << "a convolution and a ReLU of each block";
  NodeIndex last_forward;
  std::map<NodeIndex, std::set<bool>> users;  // packed weights -> are users recomputed
  for (const NodeIndex n : plan.nodes.indices()) {
    const PlanNode& node = plan.node(n);
    if (node.inputs.size() < 2 || plan.node(node.inputs[1].node).op != &kPackWeights) continue;
    const bool again = recomputed.contains(node.node);
    users[node.inputs[1].node].insert(again);
    if (!node.node->origin().forward) last_forward = n;
    if (again) {
      EXPECT_GT(node.inputs[1].node, last_forward) << node.name();
    }
  }
  EXPECT_GE(users.size(), 4U);
  for (const auto& [packed, by] : users) EXPECT_EQ(by.size(), 1U) << plan.node(packed).name();
}

// Four shards of two images have the bits of four batches of two.
void expect_the_bits_of_batches(int groups) {
  Net net(groups);
  Session packed(net.graph, {.shards_per_device = 4, .threads = 2, .all_workers = true}),
      plain(net.graph, {.threads = 1});
  for (const Variable& w : net.w) plain.write(w, packed.read(w));
  CompiledStep& step =
      packed.prepare({net.y, net.gradient[0]}, {FeedType{net.x, {8, 8, 8, 16}, 0}});
  step.run(std::vector{images(8, 0)});
  for (std::int64_t shard = 0; shard < 4; ++shard) {
    const Tensor part = images(2, static_cast<float>(shard * 2 * 8 * 8 * 16));
    const std::vector<Tensor> alone = plain.run(std::vector<Fetch>{net.y, net.gradient[0]},
                                                std::vector<FeedValue>{{net.x, part}});
    for (std::size_t i = 0; i < 2; ++i) {
      const auto want = alone[i].data<float>();
      const auto all = step.fetched(i).data<float>();
      const std::span<const float> got = all.subspan(at(shard) * want.size(), want.size());
      EXPECT_TRUE(std::ranges::equal(got, want)) << "output " << i << ", shard " << shard;
    }
  }
}

TEST(PackWeights, ChangesNoBit) { expect_the_bits_of_batches(1); }

TEST(PackWeights, ChangesNoBitOfGroups) {
  for (const int groups : {2, 16}) expect_the_bits_of_batches(groups);
}

TEST(PackWeights, TakesFiltersOfGroups) {
  if (!library()) GTEST_SKIP() << "convolutions are not those of a library";
  Net net(2);
  Session session(net.graph, {.shards_per_device = 4, .threads = 1});
  const Plan plan = *session.prepare({net.y}, {FeedType{net.x, {8, 8, 8, 16}, 0}}).plan();
  EXPECT_GE(count(plan, kPackWeights), 1);
}

// A step that writes the weights packs the old ones. The next step packs the new ones.
TEST(PackWeights, FollowsTheVersionsOfAVariable) {
  std::vector<Tensor> results;
  for (const bool reference : {false, true}) {
    Net net;
    Session session(net.graph,
                    {.shards_per_device = 4, .reference_kernels = reference, .threads = 1});
    CompiledStep& step = session.prepare({net.y, *net.update}, {FeedType{net.x, {8, 8, 8, 16}, 0}});
    for (int i = 0; i < 3; ++i) step.run(std::vector{images(8, 0)});
    results.push_back(step.fetched(0));
    results.back().mutable_raw();
  }
  for (std::size_t i = 0; i < results[0].data<float>().size(); ++i)
    ASSERT_NEAR(results[0].data<float>()[i], results[1].data<float>()[i], 1e-3);
}

}  // namespace passes_pack_weights_test
}  // namespace belfry
