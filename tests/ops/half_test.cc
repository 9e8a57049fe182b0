// Ops on f16 and bf16 give the results of f32, rounded once.
#include "belfry/framework/kernels/half.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/attention/rotary_embedding.h"
#include "belfry/ops/broadcast_to.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/convolution/avg_pool.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/convolution/conv2d_transpose.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/neg.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/pointwise/activations.h"
#include "belfry/ops/pointwise/clip.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/pointwise/maximum.h"
#include "belfry/ops/pointwise/power.h"
#include "belfry/ops/pointwise/sign.h"
#include "belfry/ops/pointwise/where.h"
#include "belfry/ops/recurrent/recurrent.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reduce_max.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/shapes/pad.h"
#include "belfry/ops/shapes/resize.h"
#include "belfry/ops/shapes/triangle.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/ops/split.h"
#include "belfry/ops/sum_to.h"
#include "belfry/ops/transpose.h"
#include "belfry/tests/ops/half_cases.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/tests/support/pointwise_ops.h"

namespace belfry {
namespace half_test {

Tensor as_f32(const Tensor& tensor) { return to(tensor, DType::kF32); }

struct HalfCase {
  const char* name;
  std::vector<Shape> inputs;
  // Builds one op, so that nothing is rounded on the way.
  std::function<Output(Inputs)> build;
  double low = -2, high = 2;
  // GPUs round weights to 16 bits before they multiply, so the unit is the largest result's.
  bool rounds_weights = false;
};

void PrintTo(const HalfCase& c, std::ostream* out) { *out << c.name; }

// Ids of rows of a table of five, or classes of six samples.
Output ids(Graph& graph) {
  return constant(graph, Tensor({6}, std::vector<std::int32_t>{4, 0, 4, 1, 0, 4}));
}

const HalfCase kCases[] = {
    {"matmul", {{5, 7}, {7, 3}}, [](Inputs x) { return matmul(x[0], x[1]); }},
    {"matmul_transposed",
     {{7, 5}, {3, 7}},
     [](Inputs x) { return matmul(x[0], x[1], {.transpose_a = true, .transpose_b = true}); }},
    {"matmul_batched",
     {{3, 5, 7}, {3, 4, 7}},
     [](Inputs x) { return matmul(x[0], x[1], {.transpose_b = true}); }},
    {"matmul_batched_transposed",
     {{3, 7, 5}, {3, 4, 7}},
     [](Inputs x) { return matmul(x[0], x[1], {.transpose_a = true, .transpose_b = true}); }},
    {"matmul_broadcast", {{2, 1, 5, 7}, {3, 7, 4}}, [](Inputs x) { return matmul(x[0], x[1]); }},
    {"matmul_of_nothing", {{3, 0}, {0, 3}}, [](Inputs x) { return matmul(x[0], x[1]); }},
    {"conv2d", {{2, 5, 6, 3}, {4, 3, 3, 3}}, [](Inputs x) { return conv2d(x[0], x[1]); }},
    {"conv2d_odd_padding",
     {{2, 6, 6, 1}, {3, 2, 2, 1}},
     [](Inputs x) { return conv2d(x[0], x[1]); }},
    {"conv2d_strided",
     {{2, 6, 5, 3}, {4, 3, 3, 3}},
     [](Inputs x) { return conv2d(x[0], x[1], {.stride = 2}); }},
    {"conv2d_dilated",
     {{2, 6, 5, 3}, {4, 3, 3, 3}},
     [](Inputs x) { return conv2d(x[0], x[1], {.dilation = 2}); }},
    {"conv2d_grouped",
     {{2, 6, 5, 4}, {6, 3, 3, 2}},
     [](Inputs x) { return conv2d(x[0], x[1], {.groups = 2}); }},
    {"conv2d_depthwise",
     {{2, 6, 5, 5}, {5, 3, 3, 1}},
     [](Inputs x) { return conv2d(x[0], x[1], {.stride = 2, .groups = 5}); }},
    {"conv2d_transpose",
     {{2, 3, 4, 4}, {4, 3, 3, 3}},
     [](Inputs x) { return conv2d_transpose(x[0], x[1], {.stride = 2, .groups = 2}); }},
    {"max_pool", {{2, 6, 6, 3}}, [](Inputs x) { return max_pool(x[0], {.window = 2}); }},
    {"avg_pool", {{2, 6, 6, 3}}, [](Inputs x) { return avg_pool(x[0], {.window = 2}); }},
    {"avg_pool_odd", {{2, 5, 5, 3}}, [](Inputs x) { return avg_pool(x[0], {.window = 2}); }},
    {"max_pool_padded",
     {{2, 6, 6, 3}},
     [](Inputs x) {
       return max_pool(x[0], {.window = 3, .stride = 2, .padding = {1, 0, 1, 0}});
     }},
    {"max_pool_twice",
     {{2, 6, 6, 3}, {2, 3, 3, 3}, {2, 6, 6, 3}},
     [](Inputs x) {
       const Output dx = gradients(max_pool(x[0]), {x[0]}, {.initial = {x[1]}}).at(0);
       return gradients(dx, {x[1]}, {.initial = {x[2]}}).at(0);
     }},
    {"avg_pool_counting",
     {{2, 5, 5, 3}},
     [](Inputs x) { return avg_pool(x[0], {.window = 2, .count_include_pad = true}); }},
    {"conv2d_padded",
     {{2, 5, 6, 3}, {4, 3, 2, 3}},
     [](Inputs x) {
       return conv2d(x[0], x[1], {.stride = 2, .padding = {1, 0, 0, 2}});
     }},
    {"gelu", {{37}}, [](Inputs x) { return gelu(x[0]); }},
    {"gelu_tanh", {{37}}, [](Inputs x) { return gelu(x[0], {.form = GeluForm::kByTanh}); }},
    {"neg", {{37}}, [](Inputs x) { return neg(x[0]); }},
    {"add", {{5, 7}, {5, 7}}, [](Inputs x) { return add(x[0], x[1]); }},
    {"add_bias", {{5, 16}, {16}}, [](Inputs x) { return add(x[0], x[1]); }},
    {"sub", {{5, 1}, {7}}, [](Inputs x) { return sub(x[0], x[1]); }},
    {"mul", {{5, 7}, {5, 7}}, [](Inputs x) { return mul(x[0], x[1]); }},
    {"div", {{5, 7}, {5, 7}}, [](Inputs x) { return div(x[0], x[1]); }, 0.5, 2},
    {"abs", {{37}}, [](Inputs x) { return abs(x[0]); }},
    {"sign", {{37}}, [](Inputs x) { return sign(x[0]); }},
    {"maximum", {{5, 7}, {7}}, [](Inputs x) { return maximum(x[0], x[1]); }},
    {"minimum", {{5, 1}, {7}}, [](Inputs x) { return minimum(x[0], x[1]); }},
    {"pow", {{5, 7}, {7}}, [](Inputs x) { return pow(x[0], x[1]); }, 0.5, 2},
    {"clip", {{37}}, [](Inputs x) { return clip(x[0], -1, 0.5); }},
    {"compare", {{5, 7}, {7}}, [](Inputs x) { return cast(less(x[0], x[1]), x[0].dtype()); }},
    {"where", {{5, 7}, {7}}, [](Inputs x) { return where(less(x[0], x[1]), x[0], x[1]); }},
    {"leaky_relu", {{37}}, [](Inputs x) { return leaky_relu(x[0], 0.2); }},
    {"elu", {{37}}, [](Inputs x) { return elu(x[0]); }},
    {"hard_swish", {{37}}, [](Inputs x) { return hard_swish(x[0]); }, -5, 5},
    {"hard_sigmoid", {{37}}, [](Inputs x) { return hard_sigmoid(x[0]); }, -5, 5},
    {"softplus", {{37}}, [](Inputs x) { return softplus(x[0]); }},
    {"add_n", {{5, 7}, {5, 7}, {5, 7}}, [](Inputs x) { return add_n(x); }},
    {"all_reduce", {{5, 7}, {5, 7}, {5, 7}}, [](Inputs x) { return all_reduce(x)[0]; }},
    {"sum_shards",
     {{5, 7}, {5, 7}, {5, 7}},
     [](Inputs x) { return x[0].graph().add(kSumShards, x).output(); }},
    {"broadcast_to", {{7}, {5, 7}}, [](Inputs x) { return broadcast_to(x[0], x[1]); }},
    {"sum_to", {{5, 7}, {7}}, [](Inputs x) { return x[0].graph().add(kSumTo, x).output(); }},
    {"softmax", {{5, 7}}, [](Inputs x) { return softmax(x[0]); }},
    {"layer_norm", {{5, 7}, {7}, {7}}, [](Inputs x) { return layer_norm(x[0], x[1], x[2]); }},
    {"rms_norm", {{5, 7}, {7}}, [](Inputs x) { return rms_norm(x[0], x[1]); }},
    {"causal_attention",
     {{2, 70, 6}, {2, 70, 6}, {2, 70, 6}},
     [](Inputs x) { return causal_attention(x[0], x[1], x[2], {.heads = 2}); },
     -2,
     2,
     true},
    {"causal_attention_of_blocks",
     {{1, 150, 16}, {1, 150, 16}, {1, 150, 16}},
     [](Inputs x) { return causal_attention(x[0], x[1], x[2]); },
     -1,
     1,
     true},
    {"attention_with_mask",
     {{2, 70, 8}, {2, 90, 4}, {2, 90, 4}, {70, 90}},
     [](Inputs x) {
       return attention(x[0], x[1], x[2], {.heads = 2, .kv_heads = 1}, {.mask = x[3]});
     },
     -1,
     1,
     true},
    {"rotary_embedding",
     {{2, 7, 12}},
     [](Inputs x) { return rotary_embedding(x[0], {.heads = 2}); }},
    {"lstm",
     {{2, 3, 12}, {3, 12}, {2, 3}, {2, 3}},
     [](Inputs x) {
       return x[0].graph().add(kLstm, x, {}, NodeOptions(RecurrenceOptions())).output(1);
     },
     -1,
     1},
    {"gru",
     {{2, 3, 9}, {3, 9}, {2, 3}, {9}},
     [](Inputs x) {
       return x[0].graph().add(kGru, x, {}, NodeOptions(RecurrenceOptions())).output(1);
     },
     -1,
     1},
    {"gather", {{5, 7}}, [](Inputs x) { return gather(x[0], ids(x[0].graph())); }},
    {"gather_grad",
     {{6, 7}},
     [](Inputs x) {
       Graph& graph = x[0].graph();
       const Output table = fill(graph, {5, 7}, 0, x[0].dtype());
       return gather_grad(x[0], ids(graph), table);
     }},
    {"cross_entropy",
     {{6, 7}},
     [](Inputs x) { return sparse_softmax_cross_entropy(x[0], ids(x[0].graph())); }},
    {"cross_entropy_smoothed",
     {{6, 7}},
     [](Inputs x) {
       return sparse_softmax_cross_entropy(x[0], ids(x[0].graph()),
                                           {.smoothing = 0.1, .ignored = 4});
     }},
    {"reduce_sum", {{5, 7}}, [](Inputs x) { return reduce_sum(x[0], {0}); }},
    {"reduce_mean", {{5, 7}}, [](Inputs x) { return reduce_mean(x[0]); }},
    {"reduce_max", {{5, 7}}, [](Inputs x) { return reduce_max(x[0], {0}); }},
    {"reduce_min", {{5, 7}}, [](Inputs x) { return reduce_min(x[0], {1}); }},
    {"concat", {{5, 7}, {5, 3}}, [](Inputs x) { return concat(x, 1); }},
    {"concat_grad",
     {{5, 10}, {5, 7}, {5, 3}},
     [](Inputs x) {
       return x[0]
           .graph()
           .add(kConcatGrad, x, {}, NodeOptions(ConcatGradOptions{.axis = 1, .part = 1}))
           .output();
     }},
    {"slice",
     {{5, 7}},
     [](Inputs x) {
       return slice(x[0], {1, 2}, {3, 5});
     }},
    {"split",
     {{5, 7}},
     [](Inputs x) {
       return split(x[0], {2, 5}, 1)[1];
     }},
    {"pad",
     {{5, 7}},
     [](Inputs x) {
       return pad(x[0], {{1, 2}, {3, 0}}, {.value = 0.3});
     }},
    {"pad_reflect",
     {{5, 7}},
     [](Inputs x) {
       return pad(x[0], {{}, {3, 2}}, {.mode = PadMode::kReflect});
     }},
    {"resize_bilinear",
     {{2, 3, 4, 3}},
     [](Inputs x) {
       return resize(x[0], {5, 3}, ResizeMethod::kBilinear);
     }},
    {"tril", {{5, 7}}, [](Inputs x) { return tril(x[0]); }},
    {"transpose", {{5, 7}}, [](Inputs x) { return transpose(x[0]); }},
    {"flatten", {{5, 7, 2}}, [](Inputs x) { return flatten(x[0]); }},
    {"dropout", {{5, 70}}, [](Inputs x) { return dropout(x[0], 0.5, "dropped"); }},
};

class Half : public testing::TestWithParam<std::tuple<DType, HalfCase>> {};

// The largest distance in units of the last place of 16 bits, of each value or of the largest
// value.
double distance(const Tensor& a, const Tensor& b, DType dtype, bool of_largest = false) {
  if (a.shape() != b.shape()) return HUGE_VAL;
  const std::vector<double> left = doubles(a), right = doubles(b);
  const int digits = dtype == DType::kF16 ? 11 : 8;
  double largest = 0;
  int least = -14;
  if (of_largest)
    for (const double value : right) least = std::max(least, std::ilogb(value));
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i]) continue;
    const int exponent =
        std::max(std::ilogb(std::max(std::abs(left[i]), std::abs(right[i]))), least);
    largest =
        std::max(largest, std::abs(left[i] - right[i]) / std::ldexp(1, exponent - digits + 1));
  }
  return largest;
}

// Placeholders of a case in 16 bits and in f32, and what feeds them.
struct Fed {
  std::vector<Output> halves, wides;
  std::vector<FeedValue> feeds;

  Fed(Graph& graph, DType dtype, const std::vector<Tensor>& inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor x = to(inputs[i], dtype);
      halves.push_back(placeholder(graph, cat("half", i), dtype, x.shape()));
      wides.push_back(placeholder(graph, cat("wide", i), DType::kF32, x.shape()));
      feeds.push_back({halves.back(), x});
      feeds.push_back({wides.back(), as_f32(x)});
    }
  }
};

// Gradients, where there are some, have the type, too, and are near those of f32, as they take the
// rounded y.
void expect_gradients_near_f32(const Fed& fed, Output half, Output wide) {
  if (!half.node().op().gradient) return;
  const DType dtype = half.dtype();
  const Tensor direction = random_values(half.shape(), -1, 1, 9);
  const std::vector<Output> ys =
      gradients(half, fed.halves, {.initial = {constant(half.graph(), to(direction, dtype))}});
  const std::vector<Output> wide_ys =
      gradients(wide, fed.wides, {.initial = {constant(half.graph(), direction)}});
  for (std::size_t i = 0; i < ys.size(); ++i) {
    ASSERT_EQ(!ys[i], !wide_ys[i]);
    if (!ys[i]) continue;
    ASSERT_EQ(ys[i].dtype(), dtype);
    const Tensor actual = as_f32(evaluate(ys[i], fed.feeds)),
                 plain = evaluate(wide_ys[i], fed.feeds);
    if (plain.elements() > 0) {
      EXPECT_LE(difference(actual, plain), dtype == DType::kF16 ? 4e-3 : 3e-2) << ys[i].name();
    }
  }
}

// One unit allows for another order of sums, which may change the rounding.
void expect_f32_rounded_once(DType dtype, const std::function<Output(Inputs)>& build,
                             const std::vector<Tensor>& inputs, bool rounds_weights = false) {
  Graph graph;
  const Fed fed(graph, dtype, inputs);
  // Random ops are keyed by their names.
  const Output half = [&] {
    const ReplicaScope replica(graph, "a/", 0);
    const NameScope names(graph, "a/");
    return build(fed.halves);
  }();
  const Output wide = [&] {
    const ReplicaScope replica(graph, "b/", 0);
    const NameScope names(graph, "b/");
    return build(fed.wides);
  }();
  ASSERT_EQ(half.dtype(), dtype);
  for (const bool reference : {false, true}) {
    const Tensor actual = as_f32(evaluate(half, fed.feeds, {.reference = reference}));
    const Tensor plain = evaluate(wide, fed.feeds, {.reference = true});
    EXPECT_LE(distance(actual, as_f32(to(plain, dtype)), dtype, rounds_weights && !reference),
              reference ? 0 : 1)
        << actual.str() << "\ninstead of\n"
        << plain.str();
  }
  expect_gradients_near_f32(fed, half, wide);
}

std::vector<Tensor> inputs_of(const HalfCase& test) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < test.inputs.size(); ++i)
    inputs.push_back(
        random_values(test.inputs[i], test.low, test.high, static_cast<unsigned>(i) + 1));
  return inputs;
}

TEST_P(Half, IsF32RoundedOnce) {
  const auto& [dtype, test] = GetParam();
  expect_f32_rounded_once(dtype, test.build, inputs_of(test), test.rounds_weights);
}

TEST(HalfOfPointwiseOps, IsF32RoundedOnce) {
  for (const Op* op : pointwise_ops())
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(testing::Message() << op->name << " of " << name_of(dtype));
      const auto build = [op](Inputs x) { return x[0].graph().add(*op, x).output(); };
      expect_f32_rounded_once(dtype, build, pointwise_inputs(*op, 37, 2));
    }
}

INSTANTIATE_TEST_SUITE_P(Ops, Half,
                         testing::Combine(testing::Values(DType::kF16, DType::kBF16),
                                          testing::ValuesIn(kCases)),
                         [](const auto& test) {
                           return cat(std::get<1>(test.param).name, "_",
                                      name_of(std::get<0>(test.param)));
                         });

// The ops of the graphs that the cases build, with gradients: those that have 16 bits on a side.
std::set<const Op*> ops_of_cases() {
  std::set<const Op*> tried;
  for (const Op* op : pointwise_ops()) tried.insert(op);
  const auto is_half = [](const Output& x) { return x.dtype() == DType::kF16; };
  for (const HalfCase& test : kCases) {
    Graph graph;
    const Fed fed(graph, DType::kF16, inputs_of(test));
    const Output y = test.build(fed.halves);
    const Tensor direction = to(random_values(y.shape()), DType::kF16);
    if (y.node().op().gradient) gradients(y, fed.halves, {.initial = {constant(graph, direction)}});
    for (std::size_t id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      bool half = std::ranges::any_of(node.inputs(), is_half);
      for (std::size_t i = 0; i < node.outputs(); ++i) half = half || is_half(node.output(i));
      if (half) tried.insert(&node.op());
    }
  }
  return tried;
}

// Ops without a case above: why, or which test tries them.
const std::pair<const char*, std::set<std::string>> kExceptions[] = {
    {"moves bits", {"AllGather", "Assign", "AssignGathered", "Copy", "GatherShards"}},
    {"reads no value", {"RankOf", "ShapeOf", "SizeOf"}},
    {"has the kernel of ReduceMean", {"ReduceMeanRows"}},
    {"refuses 16 bits", {"WholeGru", "WholeGruGrad", "WholeLstm", "WholeLstmGrad"}},
    {"cast_test.cc", {"Cast"}},
    {"gpu_ranks_test.cc", {"NcclAllReduce"}},
    {"variants_test.cc",
     {"Accuracy", "CrossEntropyWithGradient", "SparseSoftmaxCrossEntropy",
      "SparseSoftmaxCrossEntropyGrad"}},
    {"joined_attention_test.cc", {"JoinedAttention", "JoinedAttentionGrad"}},
    {"bias_activation_test.cc",
     {"BiasGelu", "BiasGeluGrad", "BiasRelu", "BiasReluGrad", "BiasSilu", "BiasSiluGrad"}},
    {"fused_batch_norm_test.cc",
     {"FusedBatchNormInference", "FusedBatchNormInferenceGrad", "FusedBatchNormInferenceRelu",
      "FusedBatchNormTrain", "FusedBatchNormTrainGrad", "FusedBatchNormTrainRelu"}},
    {"fused_layer_norm_test.cc",
     {"FusedLayerNorm", "FusedLayerNormGrad", "FusedRmsNorm", "FusedRmsNormGrad"}},
};

std::vector<std::string> without_case(std::span<const Op* const> ops) {
  const std::set<const Op*> tried = ops_of_cases();
  std::vector<std::string> names;
  for (const Op* op : ops)
    if (!tried.contains(op)) names.emplace_back(op->name);
  for (const auto& [reason, excepted] : kExceptions)
    std::erase_if(names, [&](const std::string& name) { return excepted.contains(name); });
  return names;
}

TEST(HalfCases, AreThereForAllOpsWhoseHostKernelsTakeSixteenBits) {
  std::vector<const Op*> ops = all_ops();
  std::erase_if(ops, [](const Op* op) { return !op->half; });
  EXPECT_THAT(without_case(ops), testing::IsEmpty()) << "add them to kCases, or to kExceptions";
}

// Sessions run whole plans, with their own workspaces.
TEST(HalfInSessions, GivesTheBitsOfTheInterpreter) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    Graph graph;
    const Output x = placeholder(graph, "x", dtype, {6, 8}),
                 w = placeholder(graph, "w", dtype, {8, 4});
    const Output y = softmax(add(relu(matmul(x, w)), constant(graph, 0.25, dtype)));
    const std::vector<Output> wanted = gradients(reduce_sum(mul(y, y)), {x, w});
    const std::vector<FeedValue> feeds{{x, to(random_values({6, 8}), dtype)},
                                       {w, to(random_values({8, 4}, -1, 1, 2), dtype)}};
    Session session(graph, {.device_count = {{"CPU", 1}}});
    for (int run = 0; run < 2; ++run)
      for (const Output& output : wanted)
        EXPECT_EQ(session.run(output, feeds), evaluate(output, feeds, {.reference = true}));
  }
}

TEST(HalfInSessions, WritesVariablesOf16Bits) {
  Graph graph;
  const Variable v = variable(graph, "v", {3}, {.dtype = DType::kF16, .initializer = init::ones()});
  Node& moved = assign_add(v, fill(graph, {3}, 0.5, DType::kF16));
  Session session(graph, {.device_count = {{"CPU", 1}}});
  session.run({moved});
  session.run({moved});
  EXPECT_EQ(doubles(as_f32(session.read(v))), (std::vector<double>{2, 2, 2}));
}

TEST(Half, IsWhatScalarsAreRoundedTo) {
  EXPECT_EQ(as_f32(scalar_tensor(0.1, DType::kBF16)), Tensor(0.10009765625f));
  EXPECT_EQ(as_f32(scalar_tensor(70000, DType::kF16)), Tensor(HUGE_VALF));
}

}  // namespace half_test
}  // namespace belfry
