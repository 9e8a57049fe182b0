#include "belfry/ops/operand.h"

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/shapes/constants.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace operand_test {

TEST(Operand, OperatorsMixTensorsVariablesAndScalars) {
  Graph graph;
  const Output x = constant(graph, {1, 2, 3}, {3});
  const Variable w = variable(graph, "w", {3}, {.initializer = init::constant(2)});
  const Output y = (1 + x) * w - 0.5 / x;
  EXPECT_EQ(doubles(evaluate(y)), (std::vector<double>{3.5, 5.75, 8 - 0.5f / 3}));
  EXPECT_EQ(doubles(evaluate(-x)), (std::vector<double>{-1, -2, -3}));
  EXPECT_EQ(doubles(evaluate(w * w)), (std::vector<double>{4, 4, 4}));
  EXPECT_EQ(doubles(evaluate(-w)), (std::vector<double>{-2, -2, -2}));
}

TEST(Operand, MayHaveNoElements) {
  for (const Shape& shape : {Shape{2, 0}, Shape{3, 2, 0}, Shape{2, 0, 3}}) {
    Graph graph;
    const Output x = zeros(graph, shape), y = (x + x) * x;
    Session session(graph);
    EXPECT_EQ(session.run(y).shape(), shape);
    EXPECT_EQ(session.run(gradients(reduce_sum(y), {x})[0]).shape(), shape);
  }
}

TEST(Operand, AScalarTakesTheTypeOfTheOtherSide) {
  Graph graph;
  const Output wide = constant(graph, 1, DType::kF64), count = constant(graph, 3, DType::kI32);
  EXPECT_EQ((wide * 0.1).dtype(), DType::kF64);
  EXPECT_EQ(evaluate(wide * 0.1).item<double>(), 0.1);
  EXPECT_EQ(evaluate(count - 1).item<std::int32_t>(), 2);
}

TEST(Operand, AScalarMustBeExactForIntegers) {
  Graph graph;
  const Output count = constant(graph, 3, DType::kI32);
  try {
    count * 0.5;
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("0.5"), std::string::npos) << text;
    EXPECT_NE(text.find("i32"), std::string::npos) << text;
    EXPECT_NE(text.find("operand_test.cc"), std::string::npos) << text;
  }
}

TEST(Operand, TwoScalarsAreRefused) { EXPECT_THROW(Operand(1.0) + Operand(2.0), InvalidArgument); }

TEST(Operand, NodesNameTheLineOfTheOperator) {
  Graph graph;
  const Output x = constant(graph, {1, 2}, {2});
  const unsigned line = __LINE__ + 1;
  const Output y = x * 2.0;
  EXPECT_EQ(y.node().origin().site.line, line);
  EXPECT_EQ(y.node().origin().site.str(), cat("operand_test.cc:", line));
}

TEST(Operand, ASigmoidByHandKeepsItsContract) {
  check_op({.build = [](Inputs x) { return 1.0 / (1.0 + exp(-x[0])); },
            .inputs = {random_values({5, 3})}});
}

}  // namespace operand_test
}  // namespace belfry
