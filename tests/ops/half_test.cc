// Ops on f16 and bf16 give the results of f32, rounded once.
#include "belfry/framework/kernels/half.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/attention/causal_attention.h"
#include "belfry/ops/attention/rotary_embedding.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/convolution/avg_pool.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/convolution/conv2d_transpose.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/neg.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sigmoid.h"
#include "belfry/ops/sigmoid_cross_entropy.h"
#include "belfry/ops/silu.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/ops/split.h"
#include "belfry/ops/tanh.h"
#include "belfry/ops/transpose.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

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
    {"relu", {{5, 7}}, [](Inputs x) { return relu(x[0]); }},
    {"tanh", {{37}}, [](Inputs x) { return tanh(x[0]); }},
    {"sigmoid", {{37}}, [](Inputs x) { return sigmoid(x[0]); }},
    {"sigmoid_cross_entropy",
     {{37}, {37}},
     [](Inputs x) { return sigmoid_cross_entropy(x[0], x[1]); }},
    {"silu", {{37}}, [](Inputs x) { return silu(x[0]); }},
    {"gelu", {{37}}, [](Inputs x) { return gelu(x[0]); }},
    {"gelu_tanh", {{37}}, [](Inputs x) { return gelu(x[0], {.form = GeluForm::kByTanh}); }},
    {"exp", {{37}}, [](Inputs x) { return exp(x[0]); }},
    {"neg", {{37}}, [](Inputs x) { return neg(x[0]); }},
    {"add", {{5, 7}, {5, 7}}, [](Inputs x) { return add(x[0], x[1]); }},
    {"add_bias", {{5, 16}, {16}}, [](Inputs x) { return add(x[0], x[1]); }},
    {"sub", {{5, 1}, {7}}, [](Inputs x) { return sub(x[0], x[1]); }},
    {"mul", {{5, 7}, {5, 7}}, [](Inputs x) { return mul(x[0], x[1]); }},
    {"div", {{5, 7}, {5, 7}}, [](Inputs x) { return div(x[0], x[1]); }, 0.5, 2},
    {"add_n", {{5, 7}, {5, 7}, {5, 7}}, [](Inputs x) { return add_n(x); }},
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
    {"rotary_embedding",
     {{2, 7, 12}},
     [](Inputs x) { return rotary_embedding(x[0], {.heads = 2}); }},
    {"gather", {{5, 7}}, [](Inputs x) { return gather(x[0], ids(x[0].graph())); }},
    {"gather_grad",
     {{6, 7}},
     [](Inputs x) {
       Graph& graph = x[0].graph();
       const Output table = fill(graph, {5, 7}, 0, x[0].dtype());
       return graph.add(kGatherGrad, {x[0], ids(graph), table}).output();
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
    {"concat", {{5, 7}, {5, 3}}, [](Inputs x) { return concat(x, 1); }},
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

// One unit allows for another order of sums, which may change the rounding.
TEST_P(Half, IsF32RoundedOnce) {
  const auto& [dtype, test] = GetParam();
  Graph graph;
  std::vector<Output> halves, wides;
  std::vector<FeedValue> feeds;
  for (std::size_t i = 0; i < test.inputs.size(); ++i) {
    const Shape& shape = test.inputs[i];
    const Tensor x =
        to(random_values(shape, test.low, test.high, static_cast<unsigned>(i) + 1), dtype);
    halves.push_back(placeholder(graph, cat("half", i), dtype, shape));
    wides.push_back(placeholder(graph, cat("wide", i), DType::kF32, shape));
    feeds.push_back({halves.back(), x});
    feeds.push_back({wides.back(), as_f32(x)});
  }
  // Random ops are keyed by their names.
  const Output half = [&] {
    const ReplicaScope replica(graph, "a/", 0);
    const NameScope names(graph, "a/");
    return test.build(halves);
  }();
  const Output wide = [&] {
    const ReplicaScope replica(graph, "b/", 0);
    const NameScope names(graph, "b/");
    return test.build(wides);
  }();
  ASSERT_EQ(half.dtype(), dtype);
  for (const bool reference : {false, true}) {
    const Tensor actual = as_f32(evaluate(half, feeds, {.reference = reference}));
    const Tensor plain = evaluate(wide, feeds, {.reference = true});
    EXPECT_LE(distance(actual, as_f32(to(plain, dtype)), dtype, test.rounds_weights && !reference),
              reference ? 0 : 1)
        << actual.str() << "\ninstead of\n"
        << plain.str();
  }
  // Gradients have the type, too, and are near those of f32, as they take the rounded y.
  const Tensor direction = random_values(half.shape(), -1, 1, 9);
  const std::vector<Output> ys = gradients(half, halves,
                                           {.initial = {constant(graph, to(direction, dtype))}}),
                            wide_ys =
                                gradients(wide, wides, {.initial = {constant(graph, direction)}});
  for (std::size_t i = 0; i < ys.size(); ++i) {
    ASSERT_EQ(ys[i].dtype(), dtype);
    const Tensor actual = as_f32(evaluate(ys[i], feeds)), plain = evaluate(wide_ys[i], feeds);
    if (plain.elements() > 0) {
      EXPECT_LE(difference(actual, plain), dtype == DType::kF16 ? 4e-3 : 3e-2) << ys[i].name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Half,
                         testing::Combine(testing::Values(DType::kF16, DType::kBF16),
                                          testing::ValuesIn(kCases)),
                         [](const auto& test) {
                           return cat(std::get<1>(test.param).name, "_",
                                      name_of(std::get<0>(test.param)));
                         });

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
