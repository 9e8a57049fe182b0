#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace composed_attention_test {

// Gradients of the squares of gradients, all divided by 2. Inputs are q, k, v, a mask and lengths.
Built second_gradients(Inputs x, const AttentionOptions& options) {
  AttentionInputs inputs;
  std::vector<Output> wanted{x[0], x[1], x[2]};
  if (x.size() > 3) inputs.mask = x[3];
  if (x.size() > 4) inputs.lengths = x[4];
  if (inputs.mask && is_floating(inputs.mask.dtype())) wanted.push_back(inputs.mask);
  const Output y = attention(x[0], x[1], x[2], options, inputs);
  const std::vector<Output> first = gradients(y, wanted, {.initial = {y}});
  return Built(gradients(first, wanted, {.initial = first}));
}

std::vector<Tensor> random_inputs() {
  return {random_values({4, 6, 12}, -1, 1, 1), random_values({4, 7, 6}, -1, 1, 2),
          random_values({4, 7, 6}, -1, 1, 3), random_values({4, 1, 6, 7}, -1, 1, 4),
          Tensor({4}, std::vector<std::int32_t>{7, 2, 0, 5})};
}

const AttentionOptions kOptions{.heads = 4, .kv_heads = 2, .causal = true, .window = 3};

TEST(ComposedAttention, GivesSecondGradientsThatKeepTheContractOfOps) {
  for (const std::size_t inputs : {3, 4, 5}) {
    std::vector<Tensor> given = random_inputs();
    given.resize(inputs);
    check_op({.build = [](Inputs x) { return second_gradients(x, kOptions); },
              .inputs = given,
              .f32 = 4e-6,
              .f64 = 1e-13,
              .gradient = -1,
              .library = true,
              .nan = false});
  }
}

TEST(ComposedAttention, OfQueriesThatSeeNoKeyGivesZeros) {
  Graph graph;
  std::vector<Output> xs;
  for (const Tensor& x : random_inputs()) xs.push_back(constant(graph, x));
  for (const Tensor& d : evaluate(second_gradients(xs, kOptions))) {
    const std::vector<double> values = doubles(d);
    const std::size_t row = values.size() / 4;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(std::isfinite(values[i]));
      if (i / row == 2) {
        EXPECT_EQ(values[i], 0);
      }  // the sample of length 0
    }
  }
}

TEST(ComposedAttention, In16BitsIsNearThatInF32) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const auto results = [&](DType computed) {
      Graph graph;
      std::vector<Output> xs;
      for (const Tensor& x : random_inputs())
        xs.push_back(constant(graph, is_floating(x.dtype()) ? to(to(x, dtype), computed) : x));
      return evaluate(second_gradients(xs, kOptions));
    };
    const std::vector<Tensor> exact = results(DType::kF32), rounded = results(dtype);
    for (std::size_t i = 0; i < exact.size(); ++i)
      EXPECT_LE(difference(to(rounded[i], DType::kF32), exact[i]),
                dtype == DType::kBF16 ? 4e-2 : 5e-3)
          << i;
  }
}

TEST(ComposedAttention, NeedsTheTimesOfQueriesAndKeys) {
  const TensorType known{{2, 5, 6}}, unknown{{2, kUnknownSize, 6}};
  const Builder build = [](Inputs x) { return second_gradients(x, {}); };
  const char* const why = "second derivatives need the sizes of queries";
  expect_refused(build, {unknown, known, known}, why);
  expect_refused(build, {known, unknown, unknown}, why);
}

}  // namespace composed_attention_test
}  // namespace belfry
