#include "belfry/ops/split.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/gradients.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace split_test {

Builder into(int parts, int axis) {
  return [=](Inputs x) { return split(x[0], parts, axis); };
}

TEST(Split, MakesEqualParts) {
  Graph graph;
  const auto parts = split(constant(graph, {1, 2, 3, 4, 5, 6}, {2, 3}), 3, -1);
  ASSERT_EQ(parts.size(), 3);
  EXPECT_EQ(evaluate(parts[2]), Tensor({2, 1}, std::vector<float>{3, 6}));
}

TEST(Split, KeepsItsContract) {
  for (const int axis : {0, 1, 2})
    check_op({.build = into(2, axis), .inputs = {random_values({4, 2, 6})}});
}

TEST(Split, APartWithoutGradientCountsAsZeros) {
  Graph graph;
  const Output x = constant(graph, {1, 2, 3, 4}, {4});
  const Output dx = gradients(split(x, 2, 0)[1], {x})[0];
  EXPECT_EQ(evaluate(dx), Tensor({4}, std::vector<float>{0, 0, 1, 1}));
}

TEST(Split, RefusesPartsThatAreNotEqual) {
  expect_refused(into(2, 0), {{{3, 4}}}, "dimension 0 of [3,4] has no 2 equal parts");
  expect_refused(into(0, 0), {{{3, 4}}}, "cannot make 0 parts");
}

}  // namespace split_test
}  // namespace belfry
