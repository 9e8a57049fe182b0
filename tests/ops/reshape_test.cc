#include "belfry/ops/reshape.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace reshape_test {

Builder to_shape(Shape shape) {
  return [shape](Inputs x) { return reshape(x[0], shape); };
}

TEST(Reshape, KeepsTheElements) {
  const Tensor x = random_values({2, 6});
  const Tensor y = compute(to_shape({3, kUnknownSize}), {x});
  EXPECT_EQ(y.shape(), (Shape{3, 4}));
  EXPECT_EQ(doubles(y), doubles(x));
}

TEST(Reshape, KeepsItsContract) {
  check_op({.build = to_shape({kUnknownSize, 3}), .inputs = {random_values({2, 6})}});
  check_op({.build = to_shape({}), .inputs = {random_values({1, 1})}});
}

TEST(Reshape, RefusesAnotherNumberOfElements) {
  expect_refused(to_shape({5, kUnknownSize}), {{{2, 6}}}, "cannot reshape [2,6] to [5,?]");
  expect_refused(to_shape({2, 5}), {{{2, 6}}}, "cannot reshape [2,6] to [2,5]");
  expect_refused(to_shape({kUnknownSize, kUnknownSize}), {{{2, 6}}}, "more than one unknown");
}

TEST(Reshape, OfAnUnknownBatchIsInferredWhenTheGraphRuns) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 2, 2});
  const Output y = reshape(x, {kUnknownSize, 4});
  EXPECT_EQ(y.shape(), (Shape{kUnknownSize, 4}));
  const FeedValue feed[] = {{x, random_values({3, 2, 2})}};
  EXPECT_EQ(evaluate(y, feed).shape(), (Shape{3, 4}));
}

TEST(ReshapeLike, TakesTheShapeFoundWhenTheGraphRuns) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, kUnknownSize});
  const Output flat = reshape(x, {kUnknownSize});
  const Output back = gradients(flat, {x})[0];
  EXPECT_STREQ(back.node().op().name, "ReshapeLike");
  const FeedValue feed[] = {{x, random_values({3, 2})}};
  EXPECT_EQ(evaluate(back, feed), Tensor({3, 2}, std::vector<float>(6, 1)));
}

TEST(ReshapeLike, RefusesAnotherNumberOfElements) {
  expect_refused([](Inputs x) { return reshape_like(x[0], x[1]); }, {{{5}}, {{2, 3}}},
                 "cannot reshape [5] to [2,3]");
}

TEST(Flatten, KeepsDimension0AlsoWhenItIsEmpty) {
  const Builder build = [](Inputs x) { return flatten(x[0]); };
  EXPECT_EQ(compute(build, {random_values({2, 3, 4})}).shape(), (Shape{2, 12}));
  EXPECT_EQ(compute(build, {random_values({0, 3, 4})}).shape(), (Shape{0, 12}));
  EXPECT_EQ(compute(build, {random_values({5})}).shape(), (Shape{5, 1}));
  check_op({.build = build, .inputs = {random_values({2, 3, 4})}});
}

TEST(Flatten, RefusesAScalar) {
  expect_refused([](Inputs x) { return flatten(x[0]); }, {{Shape{}}}, "Flatten 'Flatten'");
}

}  // namespace reshape_test
}  // namespace belfry
