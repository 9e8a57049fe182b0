// Which keys a query sees: by other times of keys, masks, lengths, windows; and grouped heads.
#include <cmath>
#include <limits>
#include <numbers>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/precision.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/transpose.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace seen_keys_test {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Inputs are q, k, v, and then a mask and lengths, if there are any.
Builder seeing(AttentionOptions options, bool mask = false, bool lengths = false) {
  return [=](Inputs x) {
    AttentionInputs inputs;
    if (mask) inputs.mask = x[3];
    if (lengths) inputs.lengths = x[mask ? 4 : 3];
    return attention(x[0], x[1], x[2], options, inputs);
  };
}

struct Sizes {
  std::int64_t batch, queries, keys, head_dim;
  int heads = 1, kv_heads = 1;
};

std::vector<Tensor> random_inputs(const Sizes& s, double size = 1) {
  const Shape q{s.batch, s.queries, s.heads * s.head_dim};
  const Shape k{s.batch, s.keys, s.kv_heads * s.head_dim};
  return {random_values(q, -size, size, 1), random_values(k, -size, size, 2),
          random_values(k, -size, size, 3)};
}

// About two thirds of all keys, but none of rows 5, 16, 27, ...
Tensor some_seen(const Shape& shape) {
  Tensor mask(shape, DType::kBool);
  const auto seen = mask.mutable_data<bool>();
  const auto row = static_cast<std::size_t>(shape.back());
  for (std::size_t i = 0; i < seen.size(); ++i)
    seen[i] = (i * 7 + i / row) % 3 != 0 && (i / row) % 11 != 5;
  return mask;
}

Tensor lengths_of(const std::vector<std::int32_t>& lengths) {
  return {{std::ssize(lengths)}, lengths};
}

// Scores are 0, ln 3 and ln 2 for the query, so weights are 1/6, 3/6 and 2/6.
TEST(Attention, IsTheWeightedMeanOverAllKeys) {
  const double ln2 = std::numbers::ln2, ln3 = std::log(3.0);
  const Tensor q({1, 1, 2}, std::vector<double>{ln3, ln2});
  const Tensor k({1, 3, 2}, std::vector<double>{0, 0, 1, 0, 0, 1});
  const Tensor v({1, 3, 2}, std::vector<double>{6, 0, 0, 12, 3, -6});
  const std::vector<double> y = doubles(compute(seeing({.scale = 1}), {q, k, v}));
  EXPECT_NEAR(y[0], 2, 1e-14);
  EXPECT_NEAR(y[1], 4, 1e-14);
}

// With equal scores a query gets the mean of the values that it sees.
std::vector<double> means(std::int64_t queries, std::int64_t keys, AttentionOptions options,
                          const std::vector<Tensor>& more = {}, bool mask = false,
                          bool lengths = false) {
  std::vector<double> values;
  for (std::int64_t s = 0; s < keys; ++s) values.push_back(std::pow(2.0, static_cast<double>(s)));
  std::vector<Tensor> inputs{Tensor({1, queries, 1}, DType::kF64),
                             Tensor({1, keys, 1}, DType::kF64), Tensor({1, keys, 1}, values)};
  inputs.insert(inputs.end(), more.begin(), more.end());
  return doubles(compute(seeing(options, mask, lengths), inputs));
}

TEST(Attention, TakesLengthsOf64Bits) {
  const Tensor narrow({1}, std::vector<std::int32_t>{2}), wide({1}, std::vector<std::int64_t>{2});
  EXPECT_EQ(means(1, 4, {}, {wide}, false, true), (std::vector<double>{1.5}));
  EXPECT_EQ(means(1, 4, {}, {narrow}, false, true), (std::vector<double>{1.5}));
}

TEST(Attention, OfACausalCrossAlignsTheFirstTimes) {
  EXPECT_EQ(means(4, 2, {.causal = true}), (std::vector<double>{1, 1.5, 1.5, 1.5}));
  EXPECT_EQ(means(2, 4, {.causal = true}), (std::vector<double>{1, 1.5}));
}

TEST(Attention, OfAWindowSeesTheLastKeys) {
  EXPECT_EQ(means(4, 4, {.causal = true, .window = 2}), (std::vector<double>{1, 1.5, 3, 6}));
  EXPECT_EQ(means(4, 4, {.causal = true, .window = 1}), (std::vector<double>{1, 2, 4, 8}));
  // Queries 2 and 3 are after the windows of all keys.
  EXPECT_EQ(means(4, 2, {.causal = true, .window = 1}), (std::vector<double>{1, 2, 0, 0}));
}

TEST(Attention, SeesTheKeysOfTheMask) {
  const Tensor mask({3, 3}, std::vector<std::uint8_t>{1, 0, 1, 0, 0, 0, 0, 1, 1});
  Tensor seen({3, 3}, DType::kBool);
  for (std::size_t i = 0; i < 9; ++i) seen.mutable_data<bool>()[i] = mask.data<std::uint8_t>()[i];
  EXPECT_EQ(means(3, 3, {}, {seen}, true), (std::vector<double>{2.5, 0, 3}));
  const double ln3 = std::log(3.0), hidden = -HUGE_VAL;
  const Tensor added({1, 3}, std::vector<double>{ln3, 0, hidden});
  for (const double y : means(3, 3, {}, {added}, true)) EXPECT_NEAR(y, (3 * 1 + 2) / 4.0, 1e-15);
  const Tensor nothing({1, 3}, std::vector<double>{hidden, hidden, hidden});
  EXPECT_EQ(means(2, 3, {}, {nothing}, true), (std::vector<double>{0, 0}));
}

TEST(Attention, SeesAsManyKeysAsTheLength) {
  EXPECT_EQ(means(2, 3, {}, {lengths_of({2})}, false, true), (std::vector<double>{1.5, 1.5}));
  EXPECT_EQ(means(2, 3, {}, {lengths_of({0})}, false, true), (std::vector<double>{0, 0}));
  EXPECT_EQ(means(3, 3, {.causal = true}, {lengths_of({2})}, false, true),
            (std::vector<double>{1, 1.5, 1.5}));
}

TEST(Attention, RefusesLengthsBeyondTheKeys) {
  for (const std::int32_t length : {-1, 4})
    EXPECT_THAT([&] { means(2, 3, {}, {lengths_of({length})}, false, true); },
                testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr(
                    cat("length ", length, " of sample 0 is not in [0, 3], the number of keys"))));
}

// Not even NaN: keys after the length are not read.
TEST(Attention, DoesNotSeeNanAfterTheLength) {
  const Sizes sizes{2, 70, 70, 8};
  std::vector<Tensor> inputs = random_inputs(sizes);
  inputs.push_back(lengths_of({66, 3}));
  const Tensor y = compute(seeing({}, false, true), inputs);
  for (std::size_t i : {1u, 2u})
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t e = (b == 0 ? 66 : 3) * 8; e < 70 * 8; ++e)
        inputs[i].mutable_data<float>()[static_cast<std::size_t>(b * 70 * 8 + e)] =
            std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(doubles(compute(seeing({}, false, true), inputs)), doubles(y));
}

struct Case {
  const char* name;
  Sizes sizes;
  AttentionOptions options = {};
  std::vector<Tensor> more = {};
  bool mask = false, lengths = false;
};

// Times are below, at and above the blocks of kernels.
std::vector<Case> cases() {
  return {
      {"all", {2, 5, 5, 3, 2, 2}, {.heads = 2}},
      {"cross", {2, 5, 7, 3}},
      {"grouped", {2, 5, 6, 3, 4, 2}, {.heads = 4, .kv_heads = 2}},
      {"grouped_causal", {3, 6, 6, 2, 3, 1}, {.heads = 3, .kv_heads = 1, .causal = true}},
      {"causal_cross", {2, 4, 7, 3}, {.causal = true}},
      {"causal_few_keys", {2, 7, 4, 3}, {.causal = true}},
      {"window", {2, 9, 9, 3}, {.causal = true, .window = 3}},
      {"window_few_keys", {2, 9, 4, 3}, {.causal = true, .window = 3}},
      {"seen", {2, 7, 5, 3}, {}, {some_seen({7, 5})}, true},
      {"seen_of_batch", {3, 7, 5, 2, 2, 2}, {.heads = 2}, {some_seen({3, 7, 5})}, true},
      {"seen_of_keys", {3, 7, 5, 2, 2, 2}, {.heads = 2}, {some_seen({3, 1, 1, 5})}, true},
      {"added", {3, 7, 5, 3}, {}, {random_values({7, 5}, -1, 1, 4)}, true},
      {"added_of_batch", {3, 4, 5, 3}, {}, {random_values({3, 4, 5}, -1, 1, 4)}, true},
      {"added_of_heads",
       {3, 4, 5, 2, 4, 2},
       {.heads = 4, .kv_heads = 2},
       {random_values({1, 4, 4, 5}, -1, 1, 4)},
       true},
      {"added_of_keys", {3, 4, 5, 2, 2, 2}, {.heads = 2}, {random_values({1, 5}, -1, 1, 4)}, true},
      {"lengths", {3, 4, 5, 3}, {}, {lengths_of({5, 0, 3})}, false, true},
      {"wide_lengths",
       {3, 4, 5, 3},
       {},
       {Tensor({3}, std::vector<std::int64_t>{5, 0, 3})},
       false,
       true},
      {"all_of_them",
       {3, 9, 8, 2, 4, 2},
       {.heads = 4, .kv_heads = 2, .causal = true, .window = 5},
       {random_values({3, 1, 9, 8}, -1, 1, 4), lengths_of({8, 3, 6})},
       true,
       true},
  };
}

std::vector<Case> large_cases() {
  return {
      {"all", {2, 130, 130, 20, 2, 2}, {.heads = 2}},
      {"cross", {1, 64, 150, 16}},
      {"grouped", {2, 67, 131, 6, 4, 2}, {.heads = 4, .kv_heads = 2}},
      {"causal_cross", {1, 130, 70, 6}, {.causal = true}},
      {"causal_more_keys", {1, 70, 140, 6}, {.causal = true}},
      {"window", {1, 260, 260, 6}, {.causal = true, .window = 70}},
      {"narrow_window", {1, 200, 200, 6}, {.causal = true, .window = 5}},
      {"window_few_keys", {1, 200, 70, 6}, {.causal = true, .window = 40}},
      {"seen", {2, 130, 70, 6}, {}, {some_seen({2, 130, 70})}, true},
      {"added_causal",
       {2, 130, 130, 6, 2, 1},
       {.heads = 2, .kv_heads = 1, .causal = true},
       {random_values({1, 2, 130, 130}, -1, 1, 4)},
       true},
      {"lengths",
       {3, 67, 200, 6, 2, 1},
       {.heads = 2, .kv_heads = 1},
       {lengths_of({200, 0, 65})},
       false,
       true},
      {"causal_lengths",
       {3, 130, 130, 6},
       {.causal = true},
       {lengths_of({128, 5, 65})},
       false,
       true},
  };
}

std::vector<Tensor> inputs_of(const Case& c) {
  std::vector<Tensor> inputs = random_inputs(c.sizes, 2);
  inputs.insert(inputs.end(), c.more.begin(), c.more.end());
  return inputs;
}

TEST(Attention, KeepsItsContract) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    check_op({.build = seeing(c.options, c.mask, c.lengths),
              .inputs = inputs_of(c),
              .f32 = 2e-6,
              .f64 = 1e-13,
              .gradient = 1e-6,
              .nan = false});
  }
}

TEST(Attention, GradientsOfManyTimesMatchPlainLoops) {
  for (const Case& c : large_cases()) {
    SCOPED_TRACE(c.name);
    std::vector<Tensor> inputs = inputs_of(c);
    const Sizes& s = c.sizes;
    inputs.push_back(random_values({s.batch, s.queries, s.heads * s.head_dim}, -1, 1, 5));
    check_op({.build =
                  [&c](Inputs x) {
                    const Output y = seeing(c.options, c.mask, c.lengths)(x).begin()[0];
                    std::vector<Output> wanted{x[0], x[1], x[2]};
                    if (c.mask && x[3].dtype() != DType::kBool) wanted.push_back(x[3]);
                    std::vector<Output> all = gradients(y, wanted, {.initial = {x[x.size() - 1]}});
                    all.push_back(y);
                    return Built(all);
                  },
              .inputs = inputs,
              .f32 = 4e-6,
              .f64 = 1e-13,
              .gradient = -1,
              .nan = false,
              .unknown = false});
  }
}

// The oracle: attention by other ops, with a matrix of all pairs. `added` [batch or 1, heads or 1,
// queries, keys] hides by a large negative number.
Output composed(Inputs x, Output added, const Sizes& s) {
  const auto by_heads = [&](Output z, std::int64_t time, std::int64_t heads) {
    return transpose(reshape(z, {s.batch, time, heads, s.head_dim}), {0, 2, 1, 3});
  };
  const Output q = by_heads(x[0], s.queries, s.heads), k = by_heads(x[1], s.keys, s.heads),
               v = by_heads(x[2], s.keys, s.heads);
  const Output scores =
      matmul(q, k, {.transpose_b = true}) / std::sqrt(static_cast<double>(s.head_dim)) + added;
  return reshape(transpose(matmul(softmax(scores), v), {0, 2, 1, 3}),
                 {s.batch, s.queries, s.heads * s.head_dim});
}

TEST(Attention, IsSoftmaxOfBiasedProductsWithTwoDerivatives) {
  const Sizes s{2, 70, 90, 5, 3, 3};
  Graph graph;
  std::vector<Output> xs;
  std::vector<Tensor> inputs = random_inputs(s, 2);
  inputs.push_back(random_values({2, 3, 70, 90}, -2, 2, 4));
  inputs.push_back(random_values({2, 70, 15}, -1, 1, 5));
  for (const Tensor& input : inputs) xs.push_back(constant(graph, to(input, DType::kF64)));
  const Output ours = seeing({.heads = 3}, true)(xs).begin()[0], other = composed(xs, xs[3], s);
  const std::vector<Output> wanted{xs[0], xs[1], xs[2], xs[3]};
  std::vector<Output> a = gradients(ours, wanted, {.initial = {xs[4]}}),
                      b = gradients(other, wanted, {.initial = {xs[4]}});
  const std::vector<Output> second_a = gradients(a, wanted, {.initial = a}),
                            second_b = gradients(b, wanted, {.initial = b});
  a.push_back(ours), b.push_back(other);
  a.insert(a.end(), second_a.begin(), second_a.end());
  b.insert(b.end(), second_b.begin(), second_b.end());
  const std::vector<Tensor> of_ours = evaluate(a), of_other = evaluate(b);
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_LE(difference(of_ours[i], of_other[i]), 1e-13) << i;
}

// y and all gradients, computed in `dtype`, in f32.
std::vector<Tensor> rounded_results(const Case& c, DType dtype, Precision precision) {
  Graph graph;
  std::vector<Output> xs, wanted;
  for (const Tensor& input : inputs_of(c))
    xs.push_back(
        constant(graph, is_floating(input.dtype()) ? to(to(input, DType::kBF16), dtype) : input));
  const AutocastScope scope(graph, autocasting(precision));
  const Output y = seeing(c.options, c.mask, c.lengths)(xs).begin()[0];
  for (const Output& x : xs)
    if (is_floating(x.dtype())) wanted.push_back(x);
  const Output direction =
      constant(graph, to(to(random_values(y.shape(), -1, 1, 6), DType::kBF16), dtype));
  std::vector<Output> all = gradients(y, wanted, {.initial = {direction}});
  all.push_back(y);
  std::vector<Tensor> results = evaluate(all);
  for (Tensor& result : results) result = to(result, DType::kF32);
  return results;
}

// GPUs compute these by products of blocks of queries.
TEST(Attention, InShortTypesIsNearThatInF32) {
  std::vector<Case> all = cases(), large = large_cases();
  all.insert(all.end(), large.begin(), large.end());
  for (const Case& c : all) {
    SCOPED_TRACE(c.name);
    const std::vector<Tensor> exact = rounded_results(c, DType::kF32, Precision::kF32);
    struct {
      DType dtype;
      Precision precision;
      double nearest;
    } const forms[] = {{DType::kF32, Precision::kTf32, 5e-3},
                       {DType::kBF16, Precision::kF32, 3e-2},
                       {DType::kF16, Precision::kF32, 4e-3}};
    for (const auto& [dtype, precision, nearest] : forms) {
      const std::vector<Tensor> found = rounded_results(c, dtype, precision);
      ASSERT_EQ(found.size(), exact.size());
      for (std::size_t i = 0; i < exact.size(); ++i)
        EXPECT_LE(difference(exact[i], found[i]), nearest) << name_of(dtype) << " " << i;
    }
  }
}

// Heads of a group share keys and values, so the same keys for each head give the same.
TEST(Attention, OfGroupedHeadsIsThatOfRepeatedKeys) {
  const Sizes grouped{2, 9, 7, 2, 4, 2};
  const std::vector<Tensor> x = random_inputs(grouped);
  const auto repeated = [](const Tensor& of) {  // heads 0, 0, 1, 1
    Tensor all({2, 7, 8}, DType::kF32);
    for (std::size_t row = 0; row < 14; ++row)
      for (std::size_t c = 0; c < 8; ++c)
        all.mutable_data<float>()[row * 8 + c] = of.data<float>()[row * 4 + c / 4 * 2 + c % 2];
    return all;
  };
  EXPECT_EQ(doubles(compute(seeing({.heads = 4, .kv_heads = 2}), x)),
            doubles(compute(seeing({.heads = 4}), {x[0], repeated(x[1]), repeated(x[2])})));
}

// A query without keys has zero gradients, and gives none to keys, values and the mask.
TEST(Attention, OfNoKeysHasZeroGradients) {
  Graph graph;
  const Sizes s{1, 3, 70, 4};
  std::vector<Output> xs;
  for (const Tensor& x : random_inputs(s)) xs.push_back(constant(graph, x));
  Tensor hidden({3, 70}, DType::kF32);
  for (float& x : hidden.mutable_data<float>()) x = kHidden;
  xs.push_back(constant(graph, hidden));
  const Output y = seeing({}, true)(xs).begin()[0];
  for (const Tensor& d : evaluate(gradients(y, xs)))
    for (const double x : doubles(d)) ASSERT_EQ(x, 0);
}

// Keys and values in memory of fixed size, of which each query of one time sees those so far, give
// what causal attention over all times gives.
TEST(Attention, OfOneQueryOverItsLengthIsARowOfCausalAttention) {
  const Sizes all{1, 70, 70, 8, 2, 2};
  const std::vector<Tensor> x = random_inputs(all);
  const std::vector<double> whole = doubles(compute(seeing({.heads = 2, .causal = true}), x));
  for (const std::int64_t t : {0, 5, 63, 64, 69}) {
    Tensor query({1, 1, 16}, DType::kF32);
    for (std::size_t c = 0; c < 16; ++c)
      query.mutable_data<float>()[c] = x[0].data<float>()[static_cast<std::size_t>(t) * 16 + c];
    const std::vector<double> row =
        doubles(compute(seeing({.heads = 2}, false, true),
                        {query, x[1], x[2], lengths_of({static_cast<std::int32_t>(t) + 1})}));
    for (std::size_t c = 0; c < 16; ++c)
      EXPECT_NEAR(row[c], whole[static_cast<std::size_t>(t) * 16 + c], 1e-6) << t;
  }
}

TEST(Attention, RefusesInputsThatDoNotFit) {
  const TensorType q{{2, 5, 6}}, k{{2, 7, 6}}, seen{{5, 7}, DType::kBool};
  expect_refused(seeing({.heads = 3, .kv_heads = 2}), {q, k, k},
                 "2 heads of keys and values do not divide 3 heads");
  expect_refused(seeing({.heads = 3, .kv_heads = 1}), {q, k, k}, "do not fit keys [2,7,6]");
  expect_refused(seeing({.window = 3}), {q, k, k}, "a window of 3 keys needs causal attention");
  expect_refused(seeing({.causal = true, .window = -1}), {q, k, k},
                 "the window must be at least 1 key");
  expect_refused(seeing({}), {q, k, {{2, 8, 6}}}, "do not fit keys");
  expect_refused(seeing({}, true), {q, k, k, {{5, 6}, DType::kBool}},
                 "the mask [5,6] does not fit");
  expect_refused(seeing({}, true), {q, k, k, {{3, 5, 7}, DType::kBool}},
                 "the mask [3,5,7] does not fit");
  expect_refused(seeing({}, true), {q, k, k, {{7}, DType::kBool}}, "the mask [7] does not fit");
  expect_refused(seeing({}, true), {q, k, k, {{5, 7}, DType::kF64}},
                 "must be bool, or of the type of the queries, f32");
  expect_refused(seeing({}, true), {q, k, k, {{5, 7}, DType::kI32}},
                 "the mask is i32[5,7], but must be bool");
  expect_refused(seeing({}, false, true), {q, k, k, {{3}, DType::kI32}},
                 "needs lengths i32 or i64 [batch], not i32[3]");
  expect_refused(seeing({}, false, true), {q, k, k, {{2}, DType::kF32}},
                 "needs lengths i32 or i64 [batch], not f32[2]");
  expect_refused(seeing({}), {q, {{2, 0, 6}}, {{2, 0, 6}}},
                 "queries [2,5,6] have no keys: [2,0,6]");
  const auto of_op = [](const Op& op) {
    return [&op](Inputs x) {
      return x[0].graph().add(op, x, {}, NodeOptions(AttentionOptions())).output();
    };
  };
  expect_refused(of_op(kAttention), {q, k},
                 "takes 3 inputs, and after them a mask and lengths; it has 2");
  expect_refused(of_op(kAttention), {q, k, k, seen, seen},
                 "takes 3 inputs, and after them a mask and lengths; it has 5");
  expect_refused(of_op(kAttentionGrad), {q, q, k, k, q},
                 "takes 6 inputs, and after them a mask and lengths; it has 5");
}

// Samples of a mask or of lengths go with their shards.
TEST(Attention, OfShardsTakesTheirMasksAndLengths) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 5, 6}),
               mask = placeholder(graph, "mask", DType::kF32, {5, 5}),
               lengths = placeholder(graph, "lengths", DType::kI32, {kUnknownSize});
  const Output y = attention(x, x, x, {.heads = 2}, {.mask = mask, .lengths = lengths});
  const std::vector<Output> d = gradients(y, {x, mask});
  Session session(graph, {.shards_per_device = 4, .threads = 1});
  CompiledStep& step = session.prepare(
      {d[0], d[1]}, {FeedType{x, {8, 5, 6}, 0}, FeedType{mask, {5, 5}}, FeedType{lengths, {8}, 0}});
  int found = 0;
  for (const PlanNode& node : step.plan()->nodes)
    if (node.op == &kAttention || node.op == &kAttentionGrad) {
      EXPECT_EQ(step.plan()->runs(node), 4);
      ++found;
    }
  EXPECT_EQ(found, 2);
}

}  // namespace seen_keys_test
}  // namespace belfry
