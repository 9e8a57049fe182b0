#include "belfry/ops/jacobian.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sin.h"
#include "belfry/ops/square.h"
#include "belfry/ops/tanh.h"
#include "belfry/tests/support/interpreter.h"

namespace belfry {
namespace jacobian_test {

using testing::HasSubstr;
using testing::StartsWith;

Tensor row_of(const std::vector<float>& values) {
  return Tensor({static_cast<std::int64_t>(values.size())}, values);
}

std::string refusal(Output y, Output x, const GradientOptions& options = {}) {
  try {
    jacobian(y, x, options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Jacobian, OfALinearMapIsItsMatrix) {
  Graph graph;
  const Tensor m({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  const Output x = constant(graph, row_of({7, 8, 9}));
  const Output y = reshape(matmul(constant(graph, m), reshape(x, {3, 1})), {2});
  const Output j = jacobian(y, x);
  EXPECT_EQ(j.shape(), (Shape{2, 3}));
  EXPECT_EQ(evaluate(j), m);
}

TEST(Jacobian, OfAnElementwiseFunctionIsDiagonal) {
  Graph graph;
  const Output x = constant(graph, row_of({1, 2, 3}));
  EXPECT_EQ(evaluate(jacobian(square(x), x)),
            Tensor({3, 3}, std::vector<float>{2, 0, 0, 0, 4, 0, 0, 0, 6}));
  EXPECT_EQ(evaluate(jacobian(x, x)),
            Tensor({3, 3}, std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
}

TEST(Jacobian, HasTheShapeOfYAndThenThatOfX) {
  Graph graph;
  const Output w = constant(graph, Tensor({2, 2}, std::vector<float>{1, 2, 3, 4}));
  const Output v = constant(graph, Tensor({1, 2}, std::vector<float>{5, 6}));
  const Output y = reshape(matmul(v, w), {2});  // y[k] = sum over i of v[i] w[i][k]
  EXPECT_EQ(evaluate(jacobian(y, w)),
            Tensor({2, 2, 2}, std::vector<float>{5, 0, 6, 0, 0, 5, 0, 6}));
  const Output s = constant(graph, Tensor(3.0F));
  EXPECT_EQ(evaluate(jacobian(reshape(v, {2}) * s, s)), row_of({5, 6}));
}

TEST(Jacobian, OfAScalarIsItsGradient) {
  Graph graph;
  const Output x = constant(graph, Tensor(3.0F));
  EXPECT_EQ(evaluate(jacobian(square(x), x)), Tensor(6.0F));
}

TEST(Jacobian, AgreesWithFiniteDifferences) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF64, {4});
  const Output m = constant(graph, Tensor({3, 4}, std::vector<double>{.1, -.4, .3, .9, .5, .2, -.7,
                                                                      .4, -.3, .8, .6, .1}));
  const Output y = tanh(reshape(matmul(m, reshape(sin(x), {4, 1})), {3}) + 0.25);
  const Output j = jacobian(y, x);
  const std::vector<double> at{0.3, -1.1, 0.7, 2.0};
  Session session(graph);
  const auto run = [&](const Output& what, const std::vector<double>& point) {
    return session.run({what}, {{x, Tensor({4}, point)}})[0];
  };
  const Tensor analytic = run(j, at);
  for (std::size_t k = 0; k < 4; ++k) {
    constexpr double kStep = 1e-5;
    std::vector<double> up = at, down = at;
    up[k] += kStep;
    down[k] -= kStep;
    const Tensor above = run(y, up), below = run(y, down);
    for (std::size_t i = 0; i < 3; ++i) {
      const double numeric = (above.data<double>()[i] - below.data<double>()[i]) / (2 * kStep);
      EXPECT_NEAR(analytic.data<double>()[4 * i + k], numeric, 1e-9) << i << " " << k;
    }
  }
}

TEST(Jacobian, WithRespectToAVariableCountsAllItsReads) {
  Graph graph;
  const Variable v = variable(graph, "v", {2}, {.initializer = init::value(row_of({2, 3}))});
  const Output y = square(v) + v.read();
  EXPECT_EQ(evaluate(jacobian(y, v)), Tensor({2, 2}, std::vector<float>{5, 0, 0, 7}));
}

TEST(Jacobian, OfSeveralXsIsOneResultForEach) {
  Graph graph;
  const Output a = constant(graph, row_of({1, 2})), b = constant(graph, row_of({3, 4}));
  const Output c = constant(graph, row_of({5})), xs[] = {b, c, a};
  const std::vector<Output> js = jacobian(a * b, xs);
  ASSERT_EQ(js.size(), 3U);
  EXPECT_EQ(evaluate(js[0]), Tensor({2, 2}, std::vector<float>{1, 0, 0, 2}));
  EXPECT_FALSE(js[1]);
  EXPECT_EQ(evaluate(js[2]), Tensor({2, 2}, std::vector<float>{3, 0, 0, 4}));
  EXPECT_EQ(evaluate(jacobian(a * b, c, {.unconnected = UnconnectedGradients::kZero})),
            Tensor({2, 1}, std::vector<float>{0, 0}));
}

TEST(Jacobian, TakesAnXWithOneUnknownDimension) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 2});
  const Output ones = constant(graph, Tensor({2, 1}, std::vector<float>{1, 1}));
  const Output y = reshape(matmul(square(x), ones), {3});
  const Output j = jacobian(y, x);
  EXPECT_EQ(j.shape(), (Shape{3, kUnknownSize, 2}));
  Session session(graph);
  const Tensor value =
      session.run({j}, {{x, Tensor({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6})}})[0];
  EXPECT_EQ(value, Tensor({3, 3, 2}, std::vector<float>{2, 4, 0, 0, 0, 0, 0, 0, 6, 8, 0, 0, 0, 0, 0,
                                                        0, 10, 12}));
}

TEST(Jacobian, IsBesideItsForwardNodesIfAsked) {
  Graph graph;
  Output x, y;
  {
    const DeviceScope on(graph, "/cpu:1");
    x = constant(graph, row_of({1, 2}));
  }
  {
    const DeviceScope on(graph, "/cpu:2");
    y = square(x);
  }
  const std::size_t before = graph.size();
  const DeviceScope elsewhere(graph, "/cpu:3");
  const Output j = jacobian(y, x, {.colocate = true});
  EXPECT_EQ(j.device().str(), "/device:CPU:1");
  for (std::size_t id = before; id < graph.size(); ++id) {
    EXPECT_NE(graph.node(id).device().str(), "/device:CPU:3") << graph.node(id).describe();
    EXPECT_THAT(std::string(graph.node(id).name()), StartsWith("jacobian/"));
  }
}

TEST(Jacobian, RefusesWhatHasNoRows) {
  Graph graph;
  const Output x = constant(graph, row_of({1, 2}));
  EXPECT_THAT(refusal(reshape(x, {1, 2}), x), HasSubstr("y has shape [1,2], but must be a vector"));
  EXPECT_THAT(refusal(placeholder(graph, "u", DType::kF32, {kUnknownSize}), x),
              HasSubstr("the size of y must be known"));
  EXPECT_THAT(refusal(x, placeholder(graph, "w", DType::kF32, {kUnknownSize, kUnknownSize})),
              HasSubstr("at most one dimension of w may be unknown"));
  EXPECT_THAT(refusal(x, x, {.initial = {x}}), HasSubstr("no initial gradient"));
  EXPECT_THAT(refusal(constant(graph, Tensor({0}, DType::kF32)), x), HasSubstr("no elements"));
  EXPECT_THAT(refusal(Output(), x), HasSubstr("y is empty"));
  EXPECT_THAT(refusal(x, Output()), HasSubstr("an Output of `xs` is empty"));
}

}  // namespace jacobian_test
}  // namespace belfry
