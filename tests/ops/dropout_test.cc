#include "belfry/ops/dropout.h"

#include <cmath>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace dropout_test {

Builder dropping(double rate) {
  return [=](Inputs x) { return dropout(x[0], rate, "drop"); };
}
Tensor ones(std::int64_t n) {
  return Tensor({n}, std::vector<float>(static_cast<std::size_t>(n), 1));
}

TEST(Dropout, DropsTheRateAndScalesTheRest) {
  const std::vector<double> y = doubles(compute(dropping(0.25), {ones(100000)}));
  std::int64_t dropped = 0;
  for (const double value : y) {
    dropped += value == 0;
    EXPECT_TRUE(value == 0 || value == static_cast<double>(static_cast<float>(1 / 0.75)));
  }
  // Seven standard deviations.
  EXPECT_NEAR(static_cast<double>(dropped), 25000, 7 * std::sqrt(100000 * 0.25 * 0.75));
}

TEST(Dropout, RateZeroKeepsAll) { EXPECT_EQ(compute(dropping(0), {ones(100)}), ones(100)); }

TEST(Dropout, DropsOtherElementsInEveryStepAndUnderEveryName) {
  Graph graph;
  const Output x = constant(graph, ones(256));
  const Output outputs[] = {dropout(x, 0.5, "a"), dropout(x, 0.5, "b")};
  const std::vector<Tensor> first = evaluate(outputs, {}, {.step = 1});
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[0], evaluate(outputs[0], {}, {.step = 2}));
  EXPECT_EQ(first[0], evaluate(outputs[0], {}, {.step = 1}));
}

TEST(Dropout, TheGradientHasTheSameMask) {
  Graph graph;
  const Output x = constant(graph, ones(256));
  const Output y = dropout(x, 0.5);
  const Output outputs[] = {y, gradients(y, {x})[0]};
  const std::vector<Tensor> values = evaluate(outputs, {}, {.step = 3});
  EXPECT_EQ(values[0], values[1]);
}

TEST(Dropout, KeepsItsContract) {
  const Builder with_mask = [](Inputs x) {
    const Output y = dropout(x[0], 0.3);
    return Built({y, y.node().output(1)});
  };
  check_op({.build = with_mask, .inputs = {random_values({5, 31})}});
}

TEST(Dropout, RefusesARateOfOne) {
  expect_refused(dropping(1), {{{4}}}, "the rate must be in [0, 1), not 1");
}

}  // namespace dropout_test
}  // namespace belfry
