#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fused.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/plan/fusion.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/tanh.h"
#include "belfry/tests/framework/passes/random_graph.h"

namespace belfry {
namespace passes_fuse_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What the fusions of a plan do, in order.
std::vector<std::string> fusions(const Plan& plan) {
  std::vector<std::string> found;
  for (const PlanNode& node : plan.nodes)
    if (node.op == &kFused) found.push_back(ops_in(*node.fusion()));
  return found;
}

int count(const Plan& plan, const Op& op) {
  return static_cast<int>(std::ranges::count(plan.nodes, &op, &PlanNode::op));
}

Tensor numbers(Shape shape, float first = 0) {
  Tensor x(std::move(shape), DType::kF32);
  for (float& value : x.mutable_data<float>()) value = std::sin(first++);
  return x;
}

// A placeholder of rows, and what a session makes of it, with shards or without.
struct Rows {
  explicit Rows(std::int64_t columns = 16)
      : x(placeholder(graph, "x", DType::kF32, {kRows, columns})) {}

  Plan plan(const std::vector<Fetch>& fetches, bool fuse = true, int shards = 1) {
    Session session(graph, {.threads = 1, .shards_per_device = shards, .fuse = fuse});
    return *session.prepare(fetches, std::vector{feed()}).plan();
  }
  FeedType feed() const { return {x, {kRows, x.shape().back()}, 0}; }
  std::vector<Tensor> run(const std::vector<Output>& fetches, bool fuse, int shards,
                          int threads = 1) {
    Session session(
        graph,
        {.threads = threads, .all_workers = true, .shards_per_device = shards, .fuse = fuse});
    Step& step =
        session.prepare(std::vector<Fetch>(fetches.begin(), fetches.end()), std::vector{feed()});
    step.run(std::vector{numbers({kRows, x.shape().back()})});
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < fetches.size(); ++i) {
      results.push_back(step.fetched(i));
      results.back().mutable_raw();  // memory of its own
    }
    return results;
  }

  static constexpr std::int64_t kRows = 24;
  Graph graph;
  Output x;
};

TEST(Fuse, MakesOneNodeOfAChain) {
  Rows rows;
  const Output y = tanh(relu(rows.x + constant(rows.graph, numbers({16}))));
  const Plan plan = rows.plan({y});
  EXPECT_THAT(fusions(plan), ElementsAre("Add + Relu + Tanh"));
  EXPECT_EQ(count(plan, kRelu), 0);
  const PlanNode& fused = *std::ranges::find(plan.nodes, &kFused, &PlanNode::op);
  EXPECT_EQ(fused.name(), cat(y.node().name(), "/fused"));
  EXPECT_EQ(fused.inputs.size(), 2u);
  EXPECT_EQ(fused.types.size(), 1u);
  EXPECT_THAT(fusions(rows.plan({y}, false)), IsEmpty());
}

TEST(Fuse, KeepsWhatOthersTake) {
  Rows rows;
  const Output y = relu(rows.x), z = tanh(y);
  const Plan plan = rows.plan({y, z});
  EXPECT_THAT(fusions(plan), ElementsAre("Relu + Tanh"));
  EXPECT_EQ(std::ranges::find(plan.nodes, &kFused, &PlanNode::op)->types.size(), 2u);
}

// The sum needs the product, which needs the first member.
TEST(Fuse, LeavesApartWhatAnotherNodeLiesBetween) {
  Rows rows;
  const Output y = relu(rows.x);
  const Output sum = y + matmul(y, constant(rows.graph, numbers({16, 16})));
  const Plan plan = rows.plan({tanh(sum)});
  EXPECT_THAT(fusions(plan), ElementsAre("Add + Tanh"));
  EXPECT_EQ(count(plan, kRelu), 1);
}

TEST(Fuse, BringsTwoBranchesTogether) {
  Rows rows;
  const Output w = constant(rows.graph, numbers({16, 16}));
  const Output left = relu(matmul(rows.x, w)), right = tanh(matmul(left, w));
  const Output other = tanh(matmul(rows.x, w));
  EXPECT_THAT(fusions(rows.plan({relu(right + other)})), ElementsAre("Tanh + Tanh + Add + Relu"));
}

TEST(Fuse, LooksThroughOtherNamesOfATensor) {
  Rows rows;
  const Output y = reshape(relu(rows.x), {-1, 4, 4});
  const Output z = tanh(y);
  EXPECT_THAT(fusions(rows.plan({z})), ElementsAre("Relu + Tanh"));
  const Plan both = rows.plan({y, z});
  EXPECT_THAT(fusions(both), ElementsAre("Relu + Tanh"));
  EXPECT_EQ(rows.run({y, z}, true, 1), rows.run({y, z}, false, 1));
}

TEST(Fuse, OfTensorsOfOtherSizesMakesOtherNodes) {
  Rows rows;
  const Output row = tanh(relu(constant(rows.graph, numbers({16}))));
  const Output y = relu(tanh(rows.x) + row);
  EXPECT_THAT(fusions(rows.plan({y})), ElementsAre("Relu + Tanh", "Tanh + Add + Relu"));
}

TEST(Fuse, SparesTheMemoryOfWhatMembersHandOn) {
  Rows rows(4096);
  const Output y = relu(tanh(rows.x) * rows.x + tanh(rows.x * 2.0));
  EXPECT_LT(rows.plan({y}).arena_bytes[0], rows.plan({y}, false).arena_bytes[0] * 2 / 3);
}

TEST(Fuse, WritesOverAnInputThatNobodyReadsLater) {
  Rows rows(4096);
  const Output w = constant(rows.graph, numbers({4096, 4096}));
  const Output y = matmul(tanh(relu(matmul(rows.x, w))), w);
  const Plan plan = rows.plan({y});
  const auto fused = std::ranges::find(plan.nodes, &kFused, &PlanNode::op);
  ASSERT_NE(fused, plan.nodes.end());
  EXPECT_EQ(plan.buffer({NodeIndex(fused - plan.nodes.begin()), 0}), plan.buffer(fused->inputs[0]));
}

// An element that is read again after it was written.
TEST(Fuse, DoesNotWriteOverAnInputThatALaterMemberReads) {
  Rows rows;
  const Output w = constant(rows.graph, numbers({16, 16}));
  const Output x = matmul(rows.x, w), y = relu(x), z = tanh(x) * y;
  const std::vector<Output> fetches{matmul(y, w), matmul(z, w)};
  EXPECT_THAT(fusions(rows.plan({fetches[0], fetches[1]})), testing::SizeIs(1));
  EXPECT_EQ(rows.run(fetches, true, 1), rows.run(fetches, false, 1));
}

// Batch norm of shards, forward and backward.
struct Normalised : Rows {
  Normalised() {
    gamma = variable(graph, "gamma", {16}, {.initializer = init::uniform(0.5, 2)});
    beta = variable(graph, "beta", {16}, {.initializer = init::uniform(-1, 1)});
    w = constant(graph, numbers({16, 16}));
    h = matmul(x, w);
    y = relu(batch_norm_train(h, gamma, beta).y + x);
    const Output loss = reduce_sum(tanh(matmul(y, w)));
    grads = gradients(loss, std::vector<Output>{gamma, beta, h});
  }
  Variable gamma, beta;
  Output w, h, y;
  std::vector<Output> grads;
};

TEST(Fuse, JoinsBatchNormWithWhatFollowsAndWhatComesBeforeItsGradient) {
  Normalised net;
  const Plan plan = net.plan({net.y, net.grads[0], net.grads[1], net.grads[2]}, true, 4);
  const std::vector<std::string> found = fusions(plan);
  EXPECT_THAT(found, testing::Contains("BatchNormInference + Add + Relu"));
  EXPECT_THAT(found, testing::Contains(HasSubstr("ReluGrad + BatchNormSums")));
}

TEST(Fuse, OfBatchNormKeepsTheBits) {
  Normalised net;
  const std::vector<Output> fetches{net.y, net.grads[0], net.grads[1], net.grads[2]};
  for (const int shards : {2, 5, 24, 32}) {
    const std::vector<Tensor> apart = net.run(fetches, false, shards);
    for (const int threads : {1, 2}) EXPECT_EQ(net.run(fetches, true, shards, threads), apart);
  }
}

// Members of each kind, of tensors with several blocks, and of shards of unequal size.
Output random_member(Rows& rows, std::vector<Output>& made, std::mt19937& random) {
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto any = [&] {
    return made[static_cast<std::size_t>(draw(static_cast<int>(made.size())))];
  };
  const std::int64_t columns = rows.x.shape().back();
  const Output row = constant(rows.graph, numbers({columns}, static_cast<float>(draw(9))));
  switch (draw(10)) {
    case 0: return relu(any());
    case 1: return tanh(any());
    case 2: return any() + row;
    case 3: return any() * any();
    case 4: return add_n({any(), any(), any()});
    case 5: return layer_norm(any(), row, row);
    case 6: return gelu(any());
    case 7: return dropout(any(), 0.5);
    case 8: return reshape(relu(reshape(any(), {-1, 1, columns})), {-1, columns});
    default: return relu_grad(any(), any());
  }
}

TEST(Fuse, OfRandomMembersKeepsTheBits) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    Rows rows(seed % 2 ? 640 : 48);
    std::vector<Output> made{rows.x};
    for (int i = 0; i < 14; ++i) made.push_back(random_member(rows, made, random));
    std::vector<Output> fetches{made.back(), reduce_sum(made[7])};
    for (const Output& grad : gradients(reduce_sum(made.back() + made[3]), std::vector{rows.x}))
      if (grad) fetches.push_back(grad);
    for (const int shards : {1, 5})
      EXPECT_EQ(rows.run(fetches, true, shards, 2), rows.run(fetches, false, shards)) << seed;
  }
}

}  // namespace passes_fuse_test
}  // namespace belfry
