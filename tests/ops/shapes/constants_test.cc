#include "belfry/ops/shapes/constants.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace constants_test {

std::vector<double> values(Output x) { return doubles(evaluate(x, {})); }

TEST(Constants, AreThoseOfNumPy) {
  Graph graph;
  EXPECT_EQ(values(zeros(graph, {2})), (std::vector<double>{0, 0}));
  EXPECT_EQ(values(ones(graph, {3}, DType::kI32)), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(values(eye(graph, 2)), (std::vector<double>{1, 0, 0, 1}));
  EXPECT_EQ(values(eye(graph, 2, 3)), (std::vector<double>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(values(arange(graph, 0, 3)), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(values(arange(graph, 5, 0, -2, DType::kI64)), (std::vector<double>{5, 3, 1}));
  EXPECT_EQ(values(arange(graph, 0, 1, 0.25)), (std::vector<double>{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(values(arange(graph, 3, 0)), (std::vector<double>{}));
  EXPECT_EQ(values(linspace(graph, -1, 1, 5)), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(values(linspace(graph, 2, 3, 1)), (std::vector<double>{2}));
}

TEST(Constants, TakeTheShapeOfAnother) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 2});
  const Tensor row({1, 2}, std::vector<float>{7, 8});
  const std::vector<FeedValue> feeds{{x, row}};
  EXPECT_EQ(evaluate(zeros_like(x), feeds), Tensor({1, 2}, std::vector<float>{0, 0}));
  EXPECT_EQ(evaluate(ones_like(x), feeds), Tensor({1, 2}, std::vector<float>{1, 1}));
}

TEST(Constants, RefuseWhatTheyCannotHold) {
  Graph graph;
  EXPECT_THROW(arange(graph, 0, 1, 0), InvalidArgument);
  EXPECT_THROW(arange(graph, 0, 1, 0.25, DType::kI32), InvalidArgument);
  EXPECT_THROW(eye(graph, -1), InvalidArgument);
  EXPECT_THROW(linspace(graph, 0, 1, -1), InvalidArgument);
}

}  // namespace constants_test
}  // namespace belfry
