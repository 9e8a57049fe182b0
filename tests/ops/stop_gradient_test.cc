#include "belfry/ops/stop_gradient.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace stop_gradient_test {

TEST(StopGradient, IsTheSameTensor) {
  const Tensor x = random_values({2, 3});
  EXPECT_EQ(compute([](Inputs inputs) { return stop_gradient(inputs[0]); }, {x}), x);
}

TEST(StopGradient, IsAConstantToDifferentiation) {
  Graph graph;
  const Output x = constant(graph, {3}, {1});
  EXPECT_EQ(evaluate(gradients(x * stop_gradient(x), {x})[0]).item<float>(), 3);
  EXPECT_FALSE(gradients(stop_gradient(x) * 2.0, {x})[0]);
}

TEST(StopGradient, KeepsItsContract) {
  check_op({.build = [](Inputs x) { return stop_gradient(x[0]); },
            .inputs = {random_values({5, 7})},
            .gradient = -1});
}

}  // namespace stop_gradient_test
}  // namespace belfry
