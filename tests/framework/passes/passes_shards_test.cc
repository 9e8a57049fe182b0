#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/bias_activation.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/transpose.h"
#include "belfry/tests/framework/passes/random_graph.h"

namespace belfry {
namespace passes_shards_test {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// y = relu(x w + b) for `samples` rows of 3, a loss, and a step of gradient descent.
struct Net {
  explicit Net(int layers = 1, std::int64_t width = 3) {
    x = placeholder(graph, "x", DType::kF64, {kUnknownSize, width});
    Output y = x;
    std::vector<Variable> all;
    for (int i = 0; i < layers; ++i) {
      const VariableOptions options{.dtype = DType::kF64, .initializer = init::normal(0.3)};
      all.push_back(variable(graph, cat("w", i), {width, width}, options));
      all.push_back(variable(graph, cat("b", i), {width}, options));
      y = relu(matmul(y, all[all.size() - 2]) + all.back());
    }
    out = y;
    loss = reduce_mean(y * y);
    std::vector<Output> wanted(all.begin(), all.end());
    gradient = gradients(loss, wanted);
    for (std::size_t i = 0; i < all.size(); ++i)
      updates.emplace_back(assign_sub(all[i], gradient[i] * 0.1));
  }

  CompiledStep& prepare(Session& session, std::vector<Fetch> fetches, std::int64_t samples) const {
    return session.prepare(fetches, std::vector{FeedType{x, {samples, x.shape()[1]}, 0}});
  }

  Graph graph;
  Output x, out, loss;
  std::vector<Output> gradient;
  std::vector<Fetch> updates;
};

const PlanNode& only(const Plan& plan, const Op& op) {
  const PlanNode* found = nullptr;
  for (const PlanNode& node : plan.nodes)
    if (node.op == &op) found = &node;
  require(found != nullptr, "no ", op.name);
  return *found;
}

std::int64_t count(const Plan& plan, const Op& op) {
  return std::ranges::count(plan.nodes, &op, &PlanNode::op);
}

TEST(Shards, CutRowsAndLeavePartialSums) {
  const Net net;
  Session session(net.graph, {.shards_per_device = 4, .threads = 1});
  const Plan plan = *net.prepare(session, net.updates, 12).plan();
  const Division rows = Division::by_rows(1);
  EXPECT_EQ(only(plan, kMatMul).division(0), rows);
  EXPECT_EQ(only(plan, kBiasRelu).division(0), rows);
  EXPECT_EQ(only(plan, kMatMulTransposeA).division(0), Division::partial());
  EXPECT_EQ(count(plan, kSumShards), 2);  // of both gradients
  EXPECT_EQ(count(plan, kGatherShards), 0);
  EXPECT_EQ(only(plan, kSumShards).inputs.size(), 4u);
  for (const Launch& launch : plan.launches)
    EXPECT_EQ(plan.strands[launch.strand].shards, plan.runs(plan.node(launch.node)));
}

TEST(Shards, AreNotMadeOfFeedsThatAreNoSamples) {
  const Net net;
  Session session(net.graph, {.shards_per_device = 4, .threads = 1});
  const Plan plan = *session.prepare(net.updates, std::vector{FeedType{net.x, {12, 3}}}).plan();
  for (const PlanNode& node : plan.nodes) EXPECT_FALSE(node.sharding.divides());
}

TEST(Shards, OfOneDeviceMustAgreeOnTheirSamples) {
  Graph graph;
  const Output a = placeholder(graph, "a", DType::kF32, {kUnknownSize, 2});
  const Output b = placeholder(graph, "b", DType::kF32, {kUnknownSize, 2});
  Session session(graph, {.shards_per_device = 2});
  try {
    session.prepare({a, b}, {FeedType{a, {4, 2}, 0}, FeedType{b, {6, 2}, 0}});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("Placeholder 'b'"));
    EXPECT_THAT(error.what(), HasSubstr("feeds of one device must agree"));
  }
}

// With any number of shards: some have fewer samples than others, or none.
TEST(Shards, GiveTheResultsOfTheWhole) {
  const Net net(3);
  for (const std::int64_t samples : {1, 2, 5, 12}) {
    std::vector<double> values(static_cast<std::size_t>(samples * 3));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1 * static_cast<double>(i % 7);
    const std::vector feeds{Tensor({samples, 3}, values)};
    std::vector<Tensor> whole;
    for (const int shards : {1, 2, 3, 4, 8})
      for (const int threads : {1, 2, 4}) {
        Session session(net.graph,
                        {.shards_per_device = shards, .threads = threads, .all_workers = true});
        std::vector<Fetch> fetches{net.loss, net.out};
        fetches.insert(fetches.end(), net.gradient.begin(), net.gradient.end());
        fetches.insert(fetches.end(), net.updates.begin(), net.updates.end());
        CompiledStep& step = net.prepare(session, fetches, samples);
        for (int run = 0; run < 3; ++run) step.run(feeds);
        for (std::size_t i = 0; i < 2 + net.gradient.size(); ++i) {
          const Tensor& found = step.fetched(i);
          if (shards == 1 && threads == 1) {
            whole.push_back(found);
            whole.back().mutable_raw();
            continue;
          }
          for (std::size_t e = 0; e < found.data<double>().size(); ++e)
            ASSERT_NEAR(found.data<double>()[e], whole[i].data<double>()[e], 1e-12)
                << shards << " shards, " << threads << " threads, output " << i;
        }
      }
  }
}

// At most 32 MiB of partial sums wait at a time, whatever the number of layers: five sums, and one
// that is being made.
TEST(Shards, DoNotKeepAllPartialSums) {
  constexpr std::int64_t kWidth = 600, kWeights = kWidth * kWidth * 8;
  const Net net(12, kWidth);
  Session session(net.graph, {.shards_per_device = 2, .threads = 1});
  const Plan plan = *net.prepare(session, net.updates, 2).plan();
  EXPECT_LT(plan.slices[0].bytes, 7 * kWeights);
  EXPECT_EQ(count(plan, kSumShards), 24);
}

// So a worker's cache keeps a shard from the first launch of the backward pass to the last one.
TEST(Shards, RunAheadOfSumsOf32MiB) {
  constexpr std::int64_t kWidth = 128;  // 256 KiB a sum
  const Net net(12, kWidth);
  Session session(net.graph, {.shards_per_device = 2, .threads = 1});
  const Plan plan = *net.prepare(session, net.updates, 2).plan();
  for (const Launch& launch : plan.launches) {
    if (plan.strands[launch.strand].shards == 1) continue;
    for (const Wait& wait : launch.waits)
      EXPECT_NE(plan.node(plan.launches[plan.awaited(wait)].node).op, &kSumShards);
  }
}

// A shard runs from its first row to its last gradient without a wait. The start of the backward
// pass is known before, and the sum of the loss is small.
TEST(Shards, OfASmallNetWaitForNothingButVariables) {
  const Net net(3);
  Session session(net.graph, {.shards_per_device = 4, .threads = 1});
  std::vector<Fetch> fetches{net.loss};
  fetches.insert(fetches.end(), net.updates.begin(), net.updates.end());
  const Plan plan = *net.prepare(session, fetches, 8).plan();
  EXPECT_TRUE(only(plan, kFillLike).inputs.empty());
  bool began = false;
  for (const Launch& launch : plan.launches) {
    if (plan.strands[launch.strand].shards == 1) continue;
    if (plan.node(launch.node).op == &kMatMulTransposeA) began = true;
    if (!began) continue;
    EXPECT_THAT(launch.waits, testing::IsEmpty()) << plan.node(launch.node).name();
  }
  EXPECT_TRUE(began);
}

// The quotient of a sum of integers differs from the sum of quotients.
TEST(Shards, DivideSumsOfIntegersOnce) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kI32, {kUnknownSize});
  const Output half = reduce_sum(x) / 2;
  Session session(graph, {.shards_per_device = 2, .threads = 1});
  CompiledStep& step = session.prepare({half}, {FeedType{x, {2}, 0}});
  step.run(std::vector{Tensor({2}, std::vector<std::int32_t>{1, 1})});
  EXPECT_EQ(step.fetched(0).item<std::int32_t>(), 1);
}

// Workers share sums of 16 bits, and apply them in the same pass.
TEST(Shards, AddAndApplySixteenBits) {
  constexpr std::int64_t kColumns = 100'000;
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, kColumns});
  const Variable v = variable(graph, "v", {kColumns}, {.dtype = DType::kBF16});
  Node& update = assign(v, reduce_sum(cast(x, DType::kBF16), {0}));
  Session session(graph, {.shards_per_device = 2, .threads = 2, .all_workers = true});
  CompiledStep& step = session.prepare({update}, {FeedType{x, {4, kColumns}, 0}});
  Tensor rows(Shape{4, kColumns}, DType::kF32);
  for (std::int64_t i = 0; i < 4 * kColumns; ++i)
    rows.mutable_data<float>()[at(i)] = static_cast<float>(i % kColumns % 64);
  for (int repeat = 0; repeat < 3; ++repeat) {
    step.run(std::vector{rows});
    const Tensor sums = session.run(cast(v, DType::kF32));
    for (std::int64_t i = 0; i < kColumns; ++i)
      ASSERT_EQ(sums.data<float>()[at(i)], static_cast<float>(4 * (i % 64))) << i;
  }
}

TEST(Shards, GatherForOpsWithoutARule) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 2});
  const Output y = transpose(relu(x));
  Session session(graph, {.shards_per_device = 2, .threads = 1});
  CompiledStep& step = session.prepare({y}, {FeedType{x, {3, 2}, 0}});
  EXPECT_EQ(count(*step.plan(), kGatherShards), 1);
  step.run(std::vector{Tensor({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6})});
  EXPECT_THAT(step.fetched(0).data<float>(), ElementsAre(1, 3, 5, 2, 4, 6));
}

// Rows are numbered over all devices. So two devices with two shards each drop the same rows as one
// with four.
void expect_equal_masks(DType dtype) {
  std::vector<std::vector<float>> found;
  for (const int devices : {1, 2, 4}) {
    Graph graph;
    std::vector<Output> inputs;
    std::vector<Fetch> fetches;
    std::vector<FeedType> feeds;
    std::vector<Tensor> ones;
    const std::int64_t rows = 8 / devices;
    for (int d = 0; d < devices; ++d) {
      const DeviceScope on(graph, DeviceSpec::local("CPU", d));
      const ReplicaScope replica(graph, cat("tower", d, "/"), d);
      const NameScope scope(graph, cat("tower", d));
      inputs.push_back(placeholder(graph, "x", DType::kF32, {kUnknownSize, 5}));
      fetches.emplace_back(cast(dropout(cast(inputs.back(), dtype), 0.5), DType::kF32));
      feeds.push_back({inputs.back(), {rows, 5}, d * rows});
      ones.emplace_back(Shape{rows, 5}, std::vector<float>(static_cast<std::size_t>(rows * 5), 1));
    }
    Session session(graph, {.device_count = {{"CPU", devices}}, .shards_per_device = 4 / devices});
    CompiledStep& step = session.prepare(fetches, feeds);
    step.run(ones);
    std::vector<float>& all = found.emplace_back();
    for (std::size_t i = 0; i < fetches.size(); ++i)
      all.insert(all.end(), step.fetched(i).data<float>().begin(),
                 step.fetched(i).data<float>().end());
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[0], found[2]);
  EXPECT_GT(std::ranges::count(found[0], 0), 5);
}

TEST(Shards, OfRandomOpsDependOnRowsAlone) {
  expect_equal_masks(DType::kF32);
  expect_equal_masks(DType::kF16);
}

TEST(SamplesOfShard, AreCutAtTheFloor) {
  std::vector<std::int64_t> ends;
  for (int shard = 0; shard < 3; ++shard) ends.push_back(samples_of_shard(8, 3, shard).end);
  EXPECT_THAT(ends, ElementsAre(2, 5, 8));
  EXPECT_EQ(samples_of_shard(1, 4, 0).size(), 0);
  EXPECT_EQ(samples_of_shard(1, 4, 3).size(), 1);
}

}  // namespace passes_shards_test
}  // namespace belfry
