// Shards compute common layers and their gradients by themselves: nothing is gathered.
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/attention/rotary_embedding.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/convolution/conv2d_transpose.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/sigmoid_cross_entropy.h"
#include "belfry/ops/silu.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/ops/square.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace shard_rules_test {

struct ShardCase {
  const char* name;
  std::vector<TensorType> samples;  // of one sample each
  std::vector<TensorType> weights;
  std::function<Output(Inputs)> build;  // of samples, then weights
};

const TensorType kLabel{Shape{}, DType::kI32};

ShardCase products(const char* name, MatMulOptions options) {
  return {name,
          {{options.transpose_a ? Shape{3, 4} : Shape{4, 3}},
           {options.transpose_b ? Shape{5, 3} : Shape{3, 5}}},
          {},
          [options](Inputs x) { return matmul(x[0], x[1], options); }};
}

const ShardCase kCases[] = {
    {"layer_norm",
     {{{3, 4}}},
     {{{4}}, {{4}}},
     [](Inputs x) { return layer_norm(x[0], x[1], x[2]); }},
    {"rms_norm", {{{3, 4}}}, {{{4}}}, [](Inputs x) { return rms_norm(x[0], x[1]); }},
    {"gelu", {{{5}}}, {}, [](Inputs x) { return gelu(x[0]); }},
    {"gelu_tanh", {{{5}}}, {}, [](Inputs x) { return gelu(x[0], {.form = GeluForm::kByTanh}); }},
    {"silu", {{{5}}}, {}, [](Inputs x) { return silu(x[0]); }},
    {"embedding", {{{3}, DType::kI32}}, {{{5, 4}}}, [](Inputs x) { return gather(x[1], x[0]); }},
    {"causal_attention",
     {{{5, 4}}, {{5, 4}}, {{5, 4}}},
     {},
     [](Inputs x) { return causal_attention(x[0], x[1], x[2], {.heads = 2}); }},
    {"attention_with_masks_and_lengths",
     {{{5, 4}}, {{7, 2}}, {{7, 2}}, {{5, 7}}, kLabel},
     {},
     [](Inputs x) {
       return attention(x[0], x[1], x[2], {.heads = 2, .kv_heads = 1},
                        {.mask = x[3], .lengths = x[4]});
     }},
    {"attention_with_one_mask",
     {{{5, 4}}, {{7, 4}}, {{7, 4}}},
     {{{5, 7}}},
     [](Inputs x) { return attention(x[0], x[1], x[2], {.heads = 2}, {.mask = x[3]}); }},
    {"rotary_embedding", {{{5, 4}}}, {}, [](Inputs x) { return rotary_embedding(x[0]); }},
    products("matmul", {}),
    products("matmul_transpose_a", {.transpose_a = true}),
    products("matmul_transpose_b", {.transpose_b = true}),
    products("matmul_transpose_both", {.transpose_a = true, .transpose_b = true}),
    {"sigmoid_cross_entropy",
     {{{5}}, {{5}}},
     {},
     [](Inputs x) { return sigmoid_cross_entropy(x[0], x[1]); }},
    {"cross_entropy",
     {{{5}}, kLabel},
     {},
     [](Inputs x) {
       return sparse_softmax_cross_entropy(x[0], x[1], {.smoothing = 0.1, .ignored = 2});
     }},
    {"top_k_accuracy", {{{5}}, kLabel}, {}, [](Inputs x) { return top_k_accuracy(x[0], x[1], 2); }},
    {"conv2d_grouped",
     {{{5, 5, 4}}},
     {{{6, 3, 3, 2}}},
     [](Inputs x) { return conv2d(x[0], x[1], {.groups = 2}); }},
    {"conv2d_dilated",
     {{{5, 5, 4}}},
     {{{6, 3, 3, 4}}},
     [](Inputs x) { return conv2d(x[0], x[1], {.dilation = 2}); }},
    {"conv2d_transpose",
     {{{5, 5, 4}}},
     {{{4, 3, 3, 2}}},
     [](Inputs x) { return conv2d_transpose(x[0], x[1], {.stride = 2}); }},
};

void PrintTo(const ShardCase& c, std::ostream* out) { *out << c.name; }

class ShardRules : public testing::TestWithParam<ShardCase> {};

TEST_P(ShardRules, GatherNothing) {
  constexpr std::int64_t kSamples = 8;
  constexpr int kShards = 4;
  Graph graph;
  std::vector<Output> xs, floating;
  std::vector<FeedType> feeds;
  const auto feed = [&](TensorType type, bool of_samples) {
    std::vector<std::int64_t> dims = type.shape.dims();
    if (of_samples) dims.insert(dims.begin(), kUnknownSize);
    xs.push_back(placeholder(graph, cat("x", xs.size()), type.dtype, Shape(dims)));
    if (is_floating(type.dtype)) floating.push_back(xs.back());
    if (of_samples) dims[0] = kSamples;
    feeds.push_back({xs.back(), Shape(dims), of_samples ? std::optional(0) : std::nullopt});
  };
  for (const TensorType& type : GetParam().samples) feed(type, true);
  for (const TensorType& type : GetParam().weights) feed(type, false);
  const Output y = GetParam().build(xs);
  std::vector<Fetch> fetches{y.node()};
  if (y.shape().rank() > 0)
    for (const Output& gradient : gradients(reduce_mean(square(y)), floating))
      fetches.emplace_back(gradient.node());
  Session session(graph, {.shards_per_device = kShards, .threads = 1});
  const Plan& plan = *session.prepare(fetches, feeds).plan();
  for (const PlanNode& node : plan.nodes) {
    EXPECT_NE(node.op, &kGatherShards) << node.name();
    if (node.op == &y.node().op()) {
      EXPECT_EQ(plan.runs(node), kShards) << node.name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, ShardRules, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace shard_rules_test
}  // namespace belfry
