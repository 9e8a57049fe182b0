#include "belfry/ops/pointwise/power.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace power_test {

Output power(Inputs x) { return pow(x[0], x[1]); }

Builder to_the(double y) {
  return [y](Inputs x) { return pow(x[0], y); };
}
Builder slope_of(double y) {
  return [y](Inputs x) { return gradients(pow(x[0], y), {x[0]})[0]; };
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Pow, IsExactForIntegerPowers) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const double x : {-7.0, -2.0, 3.0, 5.0, 11.0})
      for (const double y : {0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0}) {
        const std::vector<Tensor> tensors{to(Tensor(x), dtype), to(Tensor(y), dtype)};
        EXPECT_EQ(doubles(compute(power, tensors))[0], std::pow(x, y)) << x << " " << y;
        EXPECT_EQ(doubles(compute(to_the(y), {tensors[0]}))[0], std::pow(x, y)) << x << " " << y;
      }
}

TEST(Pow, HasTheSpecialValuesOfC) {
  for (const double x : {0.0, -0.0, 1.0, -1.0, 2.0, -0.5, kInfinity, -kInfinity, kNan})
    for (const double y : {0.0, 1.0, -1.0, 2.0, -3.0, 0.3, -2.5, kInfinity, -kInfinity, kNan}) {
      const double got = compute(power, {Tensor(x), Tensor(y)}).item<double>();
      const double expected = std::pow(x, y);
      EXPECT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
          << x << "^" << y << " is " << got;
      EXPECT_EQ(std::signbit(got) && !std::isnan(got),
                std::signbit(expected) && !std::isnan(expected));
    }
}

TEST(Pow, KeepsItsContractForEveryWayToRepeat) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{5, 7}, {5, 7}}, {{5, 7}, {7}}, {{5, 7}, {}}, {{}, {5, 7}}, {{5, 1}, {1, 7}}};
  for (const auto& [a, b] : shapes) {
    SCOPED_TRACE(cat(a, " and ", b));
    check_op({.build = power, .inputs = {random_values(a, 0.5, 2), random_values(b, -2, 2, 2)}});
  }
}

TEST(Pow, OfAFixedExponentKeepsItsContract) {
  for (const double y : {-2.5, -1.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 7.0}) {
    SCOPED_TRACE(y);
    check_op({.build = to_the(y), .inputs = {random_values({5, 7}, 0.5, 2)}, .f32 = 2e-6});
  }
  for (const double y : {2.0, 3.0, 4.0, 5.0})
    check_op({.build = to_the(y), .inputs = {random_values({33}, -2, 2)}, .f32 = 2e-6});
}

// As PyTorch has them.
TEST(Pow, HasGradientsAtZero) {
  const auto slope = [](double y, double x) {
    return compute(slope_of(y), {Tensor(x)}).item<double>();
  };
  EXPECT_EQ(slope(1, 0), 1);
  EXPECT_EQ(slope(2, 0), 0);
  EXPECT_EQ(slope(3, 0), 0);
  EXPECT_EQ(slope(6, 0), 0);
  EXPECT_EQ(slope(0.5, 0), kInfinity);
  EXPECT_EQ(slope(1.5, 0), 0);
  const auto of_tensors = [](std::size_t i, double x, double y) {
    return compute([i](Inputs in) { return gradients(power(in), {in[i]})[0]; },
                   {Tensor(x), Tensor(y)})
        .item<double>();
  };
  EXPECT_EQ(of_tensors(0, 0, 0), 0);
  EXPECT_EQ(of_tensors(0, 0, 1), 1);
  EXPECT_EQ(of_tensors(0, 0, 2), 0);
  EXPECT_EQ(of_tensors(0, -3, 2), -6);
  EXPECT_EQ(of_tensors(1, 0, 0), 0);
  EXPECT_EQ(of_tensors(1, 0, 2), 0);
  EXPECT_NEAR(of_tensors(1, 2, 3), 8 * std::log(2.0), 1e-14);
}

TEST(Pow, RefusesIntegersAndSides) {
  expect_refused(power, {{{2}, DType::kI32}, {{2}, DType::kI32}}, "Pow");
  expect_refused(power, {{{2, 3}}, {{2, 4}}}, "do not fit");
  expect_refused([](Inputs) { return pow(2, 3); }, {}, "has no tensor on either side");
}

}  // namespace power_test
}  // namespace belfry
