#include "belfry/ops/gelu.h"

#include <cmath>
#include <limits>
#include <numbers>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace gelu_test {

constexpr GeluForm kForms[] = {GeluForm::kExact, GeluForm::kByTanh};

Builder built(GeluForm form) {
  return [form](Inputs x) { return gelu(x[0], {.form = form}); };
}

// The gradient of its sum.
Builder gradient_of(GeluForm form) {
  return [form](Inputs x) { return gradients(gelu(x[0], {.form = form}), {x[0]})[0]; };
}

TEST(Gelu, HasValuesOfTablesOfTheNormalDistribution) {
  // x, and the share below x.
  const std::vector<std::pair<double, double>> table{{0, 0.5},
                                                     {1, 0.841344746068543},
                                                     {-1, 0.158655253931457},
                                                     {2.5, 0.993790334674224},
                                                     {-4, 3.16712418331199e-5}};
  for (const auto& [x, share] : table)
    EXPECT_NEAR(compute(built(GeluForm::kExact), {Tensor(x)}).item<double>(), x * share, 1e-14);
}

TEST(Gelu, OfTheTanhFormIsTheFormula) {
  for (const double x : {-6.0, -1.5, -0.25, 0.0, 0.75, 3.0, 8.0}) {
    const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * std::pow(x, 3));
    EXPECT_NEAR(compute(built(GeluForm::kByTanh), {Tensor(x)}).item<double>(),
                0.5 * x * (1 + std::tanh(inner)), 1e-14);
  }
}

TEST(Gelu, FormsDifferByLessThanTheHeaderSays) {
  const Tensor x = to(random_values({4000}, -8, 8), DType::kF64);
  const std::vector<double> exact = doubles(compute(built(GeluForm::kExact), {x}));
  const std::vector<double> near = doubles(compute(built(GeluForm::kByTanh), {x}));
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    largest = std::max(largest, std::abs(exact[i] - near[i]));
  EXPECT_LT(largest, 5e-4);
  EXPECT_GT(largest, 1e-4);
}

TEST(Gelu, OfHugeFiniteNumbersAndItsGradientAreFinite) {
  const float huge = std::numeric_limits<float>::max();
  const Tensor x({4}, std::vector<float>{huge, -huge, 1e20f, -1e20f});
  for (const GeluForm form : kForms) {
    EXPECT_EQ(doubles(compute(built(form), {x})), (std::vector<double>{huge, 0, 1e20f, 0}));
    EXPECT_EQ(doubles(compute(gradient_of(form), {x})), (std::vector<double>{1, 0, 1, 0}));
  }
}

TEST(Gelu, KeepsItsContract) {
  for (const GeluForm form : kForms) {
    check_op({.build = built(form), .inputs = {random_values({5, 7}, -4, 4)}});
    check_op({.build = built(form), .inputs = {random_values({}, -3, 3, 3)}});
  }
}

TEST(GeluGrad, KeepsItsContract) {
  for (const GeluForm form : kForms) {
    const Builder grad = [form](Inputs x) {
      return gradients(gelu(x[0], {.form = form}), {x[0]}, {.initial = {x[1]}})[0];
    };
    check_op({.build = grad,
              .inputs = {random_values({4, 9}, -4, 4, 1), random_values({4, 9}, -2, 2, 2)}});
  }
}

TEST(Gelu, RefusesTypesItCannotCompute) {
  expect_refused(built(GeluForm::kExact), {{{2, 3}, DType::kI32}}, "Gelu 'Gelu'");
}

}  // namespace gelu_test
}  // namespace belfry
