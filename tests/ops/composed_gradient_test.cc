#include "belfry/ops/composed_gradient.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/split.h"
#include "belfry/ops/square.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace composed_gradient_test {

std::vector<Output> product(std::span<const Output> inputs) { return {inputs[0] * inputs[1]}; }

double value_of(Output x) { return doubles(evaluate(x)).at(0); }

TEST(ComposedGradient, OfAnInputThatIsThereTwiceCountsEachPlace) {
  Graph graph;
  const Output x = constant(graph, 3), dy = constant(graph, 5);
  const std::vector<Output> dx = composed_gradient(mul(x, x).node(), {{dy}}, product);
  ASSERT_EQ(dx.size(), 2);
  EXPECT_EQ(value_of(dx[0]), 15);
  EXPECT_EQ(value_of(dx[1]), 15);
}

TEST(ComposedGradient, LeavesOutHowInputsDependOnEachOther) {
  Graph graph;
  const Output x = constant(graph, 3), dy = constant(graph, 5);
  const std::vector<Output> dx = composed_gradient(mul(x, square(x)).node(), {{dy}}, product);
  EXPECT_EQ(value_of(dx[0]), 45);
  EXPECT_EQ(value_of(dx[1]), 15);
}

TEST(ComposedGradient, IgnoresOutputsWithoutGradients) {
  Graph graph;
  const Output x = constant(graph, Tensor({2}, std::vector<double>{3, 4}));
  const Output dy = constant(graph, Tensor({1}, std::vector<double>{5}));
  const std::vector<Output> dx =
      composed_gradient(split(x, 2, 0)[0].node(), {{Output(), dy}}, [](Inputs inputs) {
        return std::vector<Output>{{}, square(split(inputs[0], 2, 0)[1])};
      });
  EXPECT_EQ(doubles(evaluate(dx.at(0))), (std::vector<double>{0, 40}));
}

}  // namespace composed_gradient_test
}  // namespace belfry
