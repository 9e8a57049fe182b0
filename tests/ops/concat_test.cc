#include "belfry/ops/concat.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace concat_test {

Builder along(int axis) {
  return [axis](Inputs x) { return concat(x, axis); };
}

TEST(Concat, PutsRowsBelowEachOther) {
  const Tensor y = compute(along(0), {Tensor({1, 2}, std::vector<float>{1, 2}),
                                      Tensor({2, 2}, std::vector<float>{3, 4, 5, 6})});
  EXPECT_EQ(y, Tensor({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(Concat, PutsColumnsBesideEachOther) {
  const Tensor y = compute(along(-1), {Tensor({2, 1}, std::vector<float>{1, 2}),
                                       Tensor({2, 2}, std::vector<float>{3, 4, 5, 6})});
  EXPECT_EQ(y, Tensor({2, 3}, std::vector<float>{1, 3, 4, 2, 5, 6}));
}

TEST(Concat, KeepsItsContract) {
  for (const int axis : {0, 1, 2}) {
    std::vector<Tensor> inputs;
    for (const int size : {2, 1, 3}) {
      Shape shape{4, 3, 2};
      shape[static_cast<std::size_t>(axis)] = size;
      inputs.push_back(random_values(shape, -2, 2, static_cast<unsigned>(size)));
    }
    check_op({.build = along(axis), .inputs = inputs});
  }
}

TEST(Concat, RefusesOtherDimensionsThatDiffer) {
  expect_refused(along(0), {{{2, 3}}, {{2, 4}}}, "differ elsewhere than along axis 0");
  expect_refused(along(2), {{{2, 3}}, {{2, 4}}}, "no axis 2 in 2 dimensions");
  expect_refused(along(0), {{{2, 3}}, {{3}}}, "[2,3] and [3]");
}

TEST(ConcatGrad, FindsItsPartWhenTheGraphRuns) {
  Graph graph;
  const Output a = placeholder(graph, "a", DType::kF32, {kUnknownSize, 2});
  const Output b = placeholder(graph, "b", DType::kF32, {kUnknownSize, 2});
  const Output both = concat({a, b}, 0);
  const Output dy = placeholder(graph, "dy", DType::kF32, {kUnknownSize, 2});
  const auto grads = gradients(both, {a, b}, {.initial = {dy}});
  const FeedValue feeds[] = {{a, random_values({1, 2})},
                             {b, random_values({2, 2})},
                             {dy, Tensor({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6})}};
  EXPECT_EQ(evaluate(grads[0], feeds), Tensor({1, 2}, std::vector<float>{1, 2}));
  EXPECT_EQ(evaluate(grads[1], feeds), Tensor({2, 2}, std::vector<float>{3, 4, 5, 6}));
}

TEST(ConcatGrad, KeepsItsContractAsAnOpOfItsOwn) {
  check_op({.build =
                [](Inputs x) {
                  return x[0]
                      .graph()
                      .add(kConcatGrad, {x[2], x[0], x[1]}, {},
                           NodeOptions(ConcatGradOptions{.axis = 1, .part = 1}))
                      .output();
                },
            .inputs = {random_values({3, 2}), random_values({3, 1}), random_values({3, 3})},
            .nan = false});
}

// N parts that each read all others would take N * N edges, and time to plan.
TEST(Concat, HasGradientsThatReadNoOtherPartWhereSizesAreKnown) {
  Graph graph;
  std::vector<Output> parts;
  for (int i = 0; i < 50; ++i)
    parts.push_back(placeholder(graph, "x", DType::kF32, {kUnknownSize, 1 + i % 3}));
  const Output whole = concat(parts, 1);
  for (const Output& grad : gradients(
           whole, parts,
           {.initial = {placeholder(graph, "dy", DType::kF32, {kUnknownSize, whole.shape()[1]})}}))
    EXPECT_EQ(grad.node().inputs().size(), 1u);
}

}  // namespace concat_test
}  // namespace belfry
