#include "belfry/ops/attention/attention.h"

#include <cmath>
#include <limits>
#include <map>
#include <numbers>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/precision.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/transpose.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/tests/support/test_devices.h"

namespace belfry {
namespace attention_test {

Builder causal(AttentionOptions options = {}) {
  return [=](Inputs x) { return causal_attention(x[0], x[1], x[2], options); };
}

std::vector<Tensor> random_heads(const Shape& shape, double size = 1) {
  return {random_values(shape, -size, size, 1), random_values(shape, -size, size, 2),
          random_values(shape, -size, size, 3)};
}

// Scores of position 1 are 0 and ln 3, scores of position 2 are 0, 0 and ln 2. So weights are (1/4,
// 3/4) and (1/4, 1/4, 1/2).
TEST(CausalAttention, GivesTheWeightedMeanOfValuesUpToAPosition) {
  const double ln2 = std::numbers::ln2, ln3 = std::log(3.0);
  const Tensor q({1, 3, 2}, std::vector<double>{5, 5, 0, ln3, ln2, 0});
  const Tensor k({1, 3, 2}, std::vector<double>{0, 0, 0, 1, 1, 7});
  const Tensor v({1, 3, 2}, std::vector<double>{4, 8, 0, 4, 2, -2});
  const std::vector<double> y = doubles(compute(causal({.scale = 1}), {q, k, v}));
  const std::vector<double> expected{4, 8, 1, 5, 2, 2};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-14) << i;
}

// With one key there is one weight, 1. Scores of position 1 are 2 / sqrt(4) apart.
TEST(CausalAttention, DividesScoresByTheRootOfTheHeadDimension) {
  const Tensor q({1, 2, 4}, std::vector<double>{0, 0, 0, 0, 1, 1, 0, 0});
  const Tensor k({1, 2, 4}, std::vector<double>{0, 0, 0, 0, 1, 1, 9, 9});
  const Tensor v({1, 2, 4}, std::vector<double>{1, 0, 0, 0, 0, 1, 0, 0});
  const std::vector<double> y = doubles(compute(causal(), {q, k, v}));
  EXPECT_EQ(y[0], 1);
  EXPECT_NEAR(y[4], 1 / (1 + std::numbers::e), 1e-15);
  EXPECT_NEAR(y[5], std::numbers::e / (1 + std::numbers::e), 1e-15);
}

// Heads are columns side by side: the first has equal scores, the second sees only its last key.
TEST(CausalAttention, OfHeadsIsThatOfEach) {
  const Tensor q({1, 2, 2}, std::vector<double>{0, 0, 0, 1});
  const Tensor k({1, 2, 2}, std::vector<double>{3, 0, 5, 1000});
  const Tensor v({1, 2, 2}, std::vector<double>{2, 30, 4, 50});
  EXPECT_EQ(doubles(compute(causal({.heads = 2}), {q, k, v})), (std::vector<double>{2, 30, 3, 50}));
}

TEST(CausalAttention, GivesTheLogarithmsOfTheSumsOfWeights) {
  const Builder sums = [](Inputs x) {
    return causal_attention(x[0], x[1], x[2], {.heads = 2}).node().output(1);
  };
  const Tensor zeros({2, 70, 4}, DType::kF32);
  const Tensor found = compute(sums, {zeros, zeros, zeros});
  EXPECT_EQ(found.shape(), (Shape{2, 2, 70}));
  for (std::int64_t i = 0; i < found.elements(); ++i)
    EXPECT_NEAR(found.data<float>()[static_cast<std::size_t>(i)],
                std::log(static_cast<double>(i % 70 + 1)), 1e-6);
}

// Times are below, at and above the blocks of kernels; heads have one column, or more than a
// vector.
TEST(CausalAttention, KeepsItsContract) {
  struct {
    Shape shape;
    int heads;
    bool numeric;
  } const cases[] = {{{3, 1, 2}, 2, true},    {{2, 5, 6}, 2, true},   {{1, 9, 20}, 1, true},
                     {{2, 64, 4}, 1, false},  {{3, 67, 6}, 2, false}, {{1, 130, 74}, 2, false},
                     {{1, 195, 48}, 1, false}};
  for (const auto& [shape, heads, numeric] : cases) {
    SCOPED_TRACE(shape.str());
    check_op({.build = causal({.heads = heads}),
              .inputs = random_heads(shape, 2),
              .f32 = 2e-6,
              .f64 = 1e-13,
              .gradient = numeric ? 1e-6 : -1});
  }
}

// Covers blocks of keys before and on the diagonal. Numeric gradients of so many times take too
// long.
TEST(CausalAttention, GradientsOfManyTimesMatchPlainLoops) {
  for (const Shape& shape : {Shape{2, 67, 6}, Shape{1, 130, 74}, Shape{1, 195, 48}}) {
    SCOPED_TRACE(shape.str());
    std::vector<Tensor> inputs = random_heads(shape, 2);
    inputs.push_back(random_values(shape, -1, 1, 4));
    check_op({.build =
                  [](Inputs x) {
                    const Output y = causal_attention(x[0], x[1], x[2], {.heads = 2});
                    return Built(gradients(y, {x[0], x[1], x[2]}, {.initial = {x[3]}}));
                  },
              .inputs = inputs,
              .f32 = 4e-6,
              .f64 = 1e-13,
              .gradient = -1,
              .unknown = false});
  }
}

// The oracle: attention by other ops, with a matrix of all pairs.
Output composed(Inputs x, std::int64_t heads) {
  const Shape& shape = x[0].shape();
  const std::int64_t time = shape[1], head_dim = shape[2] / heads;
  const auto by_heads = [&](Output z) {
    return transpose(reshape(z, {shape[0], time, heads, head_dim}), {0, 2, 1, 3});
  };
  Tensor later({time, time}, DType::kF64);
  for (std::int64_t t = 0; t < time; ++t)
    for (std::int64_t s = t + 1; s < time; ++s)
      later.mutable_data<double>()[static_cast<std::size_t>(t * time + s)] = -1e30;
  const Output scores = matmul(by_heads(x[0]), by_heads(x[1]), {.transpose_b = true});
  const Output weights =
      softmax(scores / std::sqrt(static_cast<double>(head_dim)) + constant(x[0].graph(), later));
  return reshape(transpose(matmul(weights, by_heads(x[2])), {0, 2, 1, 3}), shape);
}

TEST(CausalAttention, IsSoftmaxOfMaskedProductsWithTwoDerivatives) {
  const Builder both = [](Inputs x) {
    const std::vector<Output> wanted{x[0], x[1], x[2]};
    const Output fused = causal_attention(x[0], x[1], x[2], {.heads = 3});
    const Output plain = composed(x, 3);
    std::vector<Output> results{fused, plain};
    const std::vector<Output> a = gradients(fused, wanted, {.initial = {x[3]}}),
                              b = gradients(plain, wanted, {.initial = {x[3]}});
    const std::vector<Output> second_a = gradients(a, wanted, {.initial = a}),
                              second_b = gradients(b, wanted, {.initial = b});
    for (std::size_t i = 0; i < a.size(); ++i)
      results.insert(results.end(), {a[i], b[i], second_a[i], second_b[i]});
    return Built(results);
  };
  Graph graph;
  std::vector<Output> xs;
  for (unsigned i = 0; i < 4; ++i)
    xs.push_back(constant(graph, to(random_values({2, 100, 15}, -2, 2, i + 1), DType::kF64)));
  const Built built = both(xs);
  const std::vector<Tensor> results = evaluate(std::vector<Output>(built.begin(), built.end()));
  ASSERT_EQ(results.size(), 14);
  for (std::size_t i = 0; i < results.size(); i += 2)
    EXPECT_LE(difference(results[i], results[i + 1]), 1e-13) << i;
}

// Not even NaN and infinity may be seen, though zero times them is NaN.
TEST(CausalAttention, DoesNotSeeWhatIsBehindAPosition) {
  const Shape shape{1, 75, 8};
  const std::vector<Tensor> inputs = random_heads(shape);
  const Tensor y = compute(causal({.heads = 2}), inputs);
  for (const std::int64_t seen : {1, 6, 63, 64, 70}) {
    std::vector<Tensor> changed = inputs;
    for (std::size_t i = 0; i < 3; ++i)
      for (std::int64_t e = seen * 8; e < 75 * 8; ++e)
        changed[i].mutable_data<float>()[static_cast<std::size_t>(e)] =
            e % 3 ? std::numeric_limits<float>::quiet_NaN() : HUGE_VALF;
    const Tensor other = compute(causal({.heads = 2}), changed);
    for (std::int64_t e = 0; e < seen * 8; ++e)
      ASSERT_EQ(other.data<float>()[static_cast<std::size_t>(e)],
                y.data<float>()[static_cast<std::size_t>(e)])
          << seen << " " << e;
  }
}

TEST(CausalAttention, TakesScoresFarFromZero) {
  const std::vector<Tensor> inputs = random_heads({1, 80, 4}, 200);
  const std::vector<double> y = doubles(compute(causal({.scale = 10}), inputs));
  for (const double value : y) EXPECT_TRUE(std::abs(value) <= 200) << value;
  // All scores of the first block are -inf, later scores are not.
  Tensor q({1, 70, 1}, std::vector<float>(70, 1)), k({1, 70, 1}, std::vector<float>(70, 0)),
      v({1, 70, 1}, std::vector<float>(70, 3));
  for (std::size_t i = 0; i < 66; ++i) k.mutable_data<float>()[i] = -HUGE_VALF;
  v.mutable_data<float>()[66] = 5;
  const std::vector<double> some = doubles(compute(causal(), {q, k, v}));
  EXPECT_TRUE(std::isnan(some[65]));
  EXPECT_EQ(some[66], 5);
  EXPECT_EQ(some[67], 4);
}

TEST(CausalAttention, OfNothingIsNothing) {
  for (const Shape& shape : {Shape{0, 5, 4}, Shape{2, 0, 4}}) {
    const Tensor none(shape, DType::kF32);
    EXPECT_EQ(compute(causal({.heads = 2}), {none, none, none}).shape(), shape);
  }
}

TEST(CausalAttention, RefusesHeadsThatDoNotFit) {
  const TensorType x{{2, 5, 6}};
  expect_refused(causal({.heads = 4}), {x, x, x}, "4 heads do not divide the width");
  expect_refused(causal({.heads = 0}), {x, x, x}, "needs at least 1 head, not 0");
  expect_refused(causal({.scale = -1}), {x, x, x}, "the scale must be positive");
  expect_refused(causal(), {{{2, 6}}, {{2, 6}}, {{2, 6}}}, "Attention 'Attention'");
  expect_refused(causal(), {x, {{2, 4, 6}}, x}, "do not fit keys [2,4,6] and values [2,5,6]");
  expect_refused(causal(), {x, x, {{2, 5, 6}, DType::kF64}},
                 "queries, keys and values must be alike");
  const TensorType integer{{2, 5, 6}, DType::kI32};
  expect_refused(causal(), {integer, integer, integer}, "Attention");
}

TEST(CausalAttention, HasNoGradientOfTheSumsOfWeights) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2, 5, 6});
  const Output sums = causal_attention(x, x, x).node().output(1);
  EXPECT_THROW(gradients(sums, {x}), NotFoundError);
}

TEST(CausalAttention, ComputesIn16BitsInMixedPrecision) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2, 5, 6});
  const AutocastScope scope(graph, autocasting(Precision::kBf16));
  const Node& node = causal_attention(x, x, x, {.heads = 2}).node();
  EXPECT_EQ(node.output(0).dtype(), DType::kBF16);
  EXPECT_EQ(node.output(1).dtype(), DType::kF32);
  const Output dx = gradients(node.output(0), {x})[0];
  EXPECT_EQ(dx.dtype(), DType::kF32);
}

// GPUs compute it by products, block by block of queries; they round the factors.
TEST(CausalAttention, InTf32IsNearThatInF32) {
  const auto results = [](Precision precision) {
    Graph graph;
    std::vector<Output> xs;
    for (const Tensor& x : random_heads({2, 260, 32})) xs.push_back(constant(graph, x));
    const AutocastScope scope(graph, autocasting(precision));
    const Output y = causal_attention(xs[0], xs[1], xs[2], {.heads = 2});
    const Output direction = constant(graph, random_values(y.shape(), -1, 1, 4));
    std::vector<Output> wanted = gradients(y, xs, {.initial = {direction}});
    wanted.insert(wanted.end(), {y, y.node().output(1)});
    return evaluate(wanted);
  };
  const std::vector<Tensor> exact = results(Precision::kF32), rounded = results(Precision::kTf32);
  for (std::size_t i = 0; i < exact.size(); ++i)
    EXPECT_LE(difference(exact[i], rounded[i]), test::test_gpus() > 0 ? 5e-3 : 1e-5) << i;
}

// cuDNN takes these sizes of heads on GPUs. Logarithms of sums are as exact as in f32, so that any
// forward pass goes with any gradient.
TEST(CausalAttention, In16BitsIsNearThatInF32) {
  struct {
    Shape shape;
    int heads;
  } const cases[] = {{{2, 130, 64}, 2}, {{1, 256, 128}, 2}, {{3, 64, 128}, 4}, {{1, 300, 40}, 1}};
  for (const auto& [shape, heads] : cases)
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(cat(name_of(dtype), " ", shape));
      std::vector<Tensor> inputs = random_heads(shape, 2);
      inputs.push_back(random_values(shape, -1, 1, 4));
      for (Tensor& input : inputs) input = to(input, dtype);
      const auto results = [&](DType computed) {
        Graph graph;
        std::vector<Output> xs;
        for (const Tensor& input : inputs) xs.push_back(constant(graph, to(input, computed)));
        const Output y = causal_attention(xs[0], xs[1], xs[2], {.heads = heads});
        std::vector<Output> all =
            gradients(y, {xs[0], xs[1], xs[2]}, {.initial = std::vector{xs[3]}});
        all.insert(all.end(), {y, y.node().output(1)});
        return evaluate(all);
      };
      const std::vector<Tensor> exact = results(DType::kF32), rounded = results(dtype);
      for (std::size_t i = 0; i < 5; ++i)
        EXPECT_LE(difference(exact[i], to(rounded[i], DType::kF32)), i == 4                  ? 1e-4
                                                                     : dtype == DType::kBF16 ? 2e-2
                                                                                             : 3e-3)
            << i;
    }
}

// Memory for gradients grows with the time alone: no tensor has more elements than x.
TEST(CausalAttention, KeepsNoMatrixOfAllPairs) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {1, 4096, 16});
  const Output dx = gradients(causal_attention(x, x, x), {x})[0];
  Session session(graph, {.threads = 1});
  const CompiledStep& step = session.prepare({dx}, {FeedType{x, {1, 4096, 16}, 0}});
  std::int64_t arenas = 0;
  for (const std::int64_t bytes : step.plan()->arena_bytes) arenas += bytes;
  EXPECT_LT(arenas, 4096 * 16 * 4 * 12);
}

TEST(CausalAttention, OfABatchInShardsIsComputedByThem) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 5, 6});
  const Output dx = gradients(causal_attention(x, x, x, {.heads = 2}), {x})[0];
  Session session(graph, {.shards_per_device = 4, .threads = 1});
  CompiledStep& step = session.prepare({dx}, {FeedType{x, {8, 5, 6}, 0}});
  std::map<const Op*, int> runs;
  for (const PlanNode& node : step.plan()->nodes) runs[node.op] = step.plan()->runs(node);
  EXPECT_EQ(runs.at(&kAttention), 4);
  EXPECT_EQ(runs.at(&kAttentionGrad), 4);
}

}  // namespace attention_test
}  // namespace belfry
