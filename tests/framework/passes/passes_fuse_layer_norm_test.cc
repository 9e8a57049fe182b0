// Nodes that pass `fuse` joins with a layer norm or RMS norm, and nodes that it leaves alone.
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/placement/explain.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/normalization/fused_layer_norm.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/reshape.h"
#include "belfry/tests/framework/passes/fused_plan.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace passes_fuse_layer_norm_test {

// Two branches beside the rows x [n, 3, 4], as in a transformer. Each is a norm of the rows, times
// a matrix, plus a bias. `branch` is the type of products, as in mixed precision.
struct Net {
  explicit Net(DType of_rows = DType::kF32, DType branch = DType::kF32, bool centred = true,
               const char* device = "CPU") {
    const DeviceScope scope(graph, DeviceSpec::local(device, 0));
    x = placeholder(graph, "x", of_rows, {6, 3, 4});
    const DType wide = of_rows == DType::kF64 ? of_rows : DType::kF32;
    gamma = fill(graph, {4}, 1.5, wide);
    weights = fill(graph, {4, 4}, 0.25, branch);
    bias = fill(graph, {4}, 0.5, branch);
    const auto normalised = [&](Output rows) {
      const Output in = cast(rows, wide);
      return cast(centred ? layer_norm(in, gamma, gamma) : rms_norm(in, gamma), of_rows);
    };
    const auto block = [&](Output rows) {
      const Output flat = reshape(normalised(rows), {18, 4});
      const Output product = matmul(cast(flat, branch), weights) + bias;
      return rows + cast(reshape(product, {6, 3, 4}), of_rows);
    };
    first = block(x);
    y = normalised(block(first));
    dx = gradients(y, std::vector{x, gamma}, {.initial = {y * y}});
  }
  std::vector<Fetch> fetches() const { return {y, dx[0], dx[1]}; }

  Graph graph;
  Output x, gamma, weights, bias, first, y;
  std::vector<Output> dx;
};

TEST(FuseLayerNorm, TakesTheSumAndTheBiasBeforeItAndTheSumOfGradients) {
  for (const int shards : {1, 3})
    for (const bool centred : {true, false}) {
      const Net net(DType::kF32, DType::kF32, centred);
      Session session(net.graph, {.shards_per_device = shards, .threads = 1});
      const auto ops = test::ops_of(*test::prepared(session, net.fetches(), net.x).plan());
      EXPECT_EQ(ops.count(centred ? "FusedLayerNorm" : "FusedRmsNorm"), 2u);
      EXPECT_EQ(ops.count(centred ? "FusedLayerNormGrad" : "FusedRmsNormGrad"), 2u);
      EXPECT_EQ(ops.count(centred ? "LayerNorm" : "RmsNorm"), 1u);  // of x itself
      EXPECT_EQ(ops.count("Add"), 0u) << shards;
      EXPECT_EQ(ops.count("AddN"), 1u) << shards;  // of the gradients of gamma
    }
}

TEST(FuseLayerNorm, WritesASumThatOthersReadAndNoOther) {
  const Net net;
  Session session(net.graph, {.threads = 1});
  const CompiledStep& step = test::prepared(session, {net.y}, net.x);
  std::multiset<std::size_t> outputs;
  for (const PlanNode& node : step.plan()->nodes)
    if (node.op == &kFusedLayerNorm) outputs.insert(node.types.size());
  EXPECT_EQ(outputs, (std::multiset<std::size_t>{1, 2}));
}

TEST(FuseLayerNorm, LeavesABranchThatIsReadElsewhere) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2, 4}), gamma = fill(graph, {4}, 2);
  const Output branch = x * 2 + gamma;
  const Output y = layer_norm(branch + x, gamma, gamma);
  Session session(graph, {.threads = 1});
  const auto ops = test::ops_of(*session.prepare({y, branch}, {FeedType{x, {2, 4}}}).plan());
  EXPECT_EQ(ops.count("FusedLayerNorm"), 1u);
  EXPECT_EQ(ops.count("Add"), 1u);  // the bias
}

TEST(FuseLayerNorm, LeavesASumThatRepeatsAnOperand) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2, 4}), gamma = fill(graph, {4}, 2);
  Session session(graph, {.threads = 1});
  for (const Output rows : {x + gamma, x + x}) {
    const Output y = layer_norm(rows, gamma, gamma);
    const auto ops = test::ops_of(*session.prepare({y}, {FeedType{x, {2, 4}}}).plan());
    EXPECT_EQ(ops.count("LayerNorm"), 1u);
  }
}

TEST(FuseLayerNorm, LeavesFactorsOf16Bits) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kBF16, {2, 4});
  const Output gamma = fill(graph, {4}, 2, DType::kBF16);
  const Output y = layer_norm(x + x * 2, gamma, gamma);
  const Output dx = gradients(y, {x}, {.initial = {x}})[0];
  test::expect_same_when_fused(graph, x, {y, dx}, {.threads = 1});
  Session session(graph, {.threads = 1});
  const auto ops = test::ops_of(*test::prepared(session, {y, dx}, x).plan());
  EXPECT_EQ(ops.count("LayerNorm"), 1u);
  EXPECT_EQ(ops.count("LayerNormGrad"), 1u);
}

TEST(FuseLayerNorm, TakesCastsOnGpus) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  for (const DType of_rows : {DType::kF32, DType::kBF16}) {
    const Net net(of_rows, DType::kBF16, true, "GPU");
    Session session(net.graph, {.device_count = {{"GPU", 1}}, .threads = 1});
    const auto ops = test::ops_of(*test::prepared(session, {net.dx[0]}, net.x).plan());
    EXPECT_EQ(ops.count("FusedLayerNorm"), 3u);
    // The last norm has rows of f32 before and behind it.
    const std::size_t wide = of_rows == DType::kF32 ? 1 : 0;
    EXPECT_EQ(ops.count("FusedLayerNormGrad"), 3 - wide);
    EXPECT_EQ(ops.count("LayerNormGrad"), wide);
    EXPECT_EQ(ops.count("Add"), wide);  // its bias
  }
}

TEST(FuseLayerNorm, ChangesNoBitAndTakesNoMoreMemory) {
  const std::pair<DType, DType> types[] = {{DType::kF32, DType::kF32},
                                           {DType::kF64, DType::kF64},
                                           {DType::kF32, DType::kBF16},
                                           {DType::kBF16, DType::kBF16}};
  for (const auto& [of_rows, branch] : types)
    for (const int shards : {1, 3})
      for (const bool centred : {true, false}) {
        const Net net(of_rows, branch, centred);
        test::expect_same_when_fused(net.graph, net.x, net.fetches(),
                                     {.shards_per_device = shards, .threads = 1});
      }
}

TEST(FuseLayerNorm, IsExplained) {
  const Net net;
  Session session(net.graph, {.threads = 1});
  const CompiledStep& step = test::prepared(session, net.fetches(), net.x);
  Explanation sum;
  explain_step(net.first.node(), *step.plan(), sum);
  EXPECT_TRUE(sum.fused_into.starts_with("FusedLayerNorm LayerNorm")) << sum.fused_into;
  EXPECT_NE(sum.str().find("fused with others into: FusedLayerNorm"), std::string::npos);
  Explanation product;
  explain_step(net.x.node(), *step.plan(), product);
  EXPECT_EQ(product.fused_into, "");
}

}  // namespace passes_fuse_layer_norm_test
}  // namespace belfry
