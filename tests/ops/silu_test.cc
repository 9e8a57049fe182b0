#include "belfry/ops/silu.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace silu_test {

Output built(Inputs x) { return silu(x[0]); }

TEST(Silu, HasValuesKnownByHand) {
  const std::vector<double> y =
      doubles(compute(built, {Tensor({4}, std::vector<double>{0, 1, -1, -200})}));
  const std::vector<double> expected{0, 0.731058578630005, -0.268941421369995, 0};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-14) << i;
}

TEST(Silu, OfHugeFiniteNumbersAndItsGradientAreFinite) {
  const float huge = std::numeric_limits<float>::max();
  const Tensor x({2}, std::vector<float>{huge, -huge});
  const Builder gradient = [](Inputs in) { return gradients(silu(in[0]), {in[0]})[0]; };
  EXPECT_EQ(doubles(compute(built, {x})), (std::vector<double>{huge, 0}));
  EXPECT_EQ(doubles(compute(gradient, {x})), (std::vector<double>{1, 0}));
}

TEST(Silu, KeepsItsContract) {
  check_op({.build = built, .inputs = {random_values({5, 7}, -4, 4)}});
  check_op({.build = built, .inputs = {random_values({}, -3, 3, 3)}});
}

TEST(SiluGrad, KeepsItsContract) {
  const Builder grad = [](Inputs x) {
    return gradients(silu(x[0]), {x[0]}, {.initial = {x[1]}})[0];
  };
  check_op({.build = grad,
            .inputs = {random_values({4, 9}, -4, 4, 1), random_values({4, 9}, -2, 2, 2)}});
}

TEST(Silu, RefusesTypesItCannotCompute) {
  expect_refused(built, {{{2, 3}, DType::kI32}}, "Silu 'Silu'");
}

}  // namespace silu_test
}  // namespace belfry
