#include "belfry/ops/weigh.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace weigh_test {

using Make = Output (*)(Output, Output, At);

Builder with(Make make) {
  return [make](Inputs x) { return make(x[0], x[1], {}); };
}

Tensor scalar(double value) { return Tensor({}, std::vector<double>{value}); }

TEST(Weigh, MultipliesDividesAndKeeps) {
  const Tensor x({3}, std::vector<double>{1, -2, 6});
  EXPECT_EQ(doubles(compute(with(weigh), {x, scalar(3)})), (std::vector<double>{3, -6, 18}));
  EXPECT_EQ(doubles(compute(with(unweigh), {x, scalar(4)})), (std::vector<double>{.25, -.5, 1.5}));
  EXPECT_EQ(doubles(compute(with(if_counted), {x, scalar(4)})), (std::vector<double>{1, -2, 6}));
}

TEST(Weigh, LetsNothingOfWeightZeroThrough) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor garbage({4}, std::vector<double>{kNan, kInfinity, -kInfinity, -1});
  for (const Make make : {Make(weigh), Make(unweigh), Make(if_counted)})
    for (const double value : doubles(compute(with(make), {garbage, scalar(0)}))) {
      EXPECT_EQ(value, 0);
      EXPECT_FALSE(std::signbit(value));
    }
}

TEST(Weigh, KeepsItsContract) {
  for (const Make make : {Make(weigh), Make(unweigh), Make(if_counted)})
    for (const double weight : {0., 3.}) {
      const Builder fixed = [&](Inputs x) {
        return make(x[0], constant(x[0].graph(), weight, x[0].dtype()), {});
      };
      check_op({.build = fixed, .inputs = {random_values({5, 37})}, .nan = weight != 0});
      check_op({.build = with(make),
                .inputs = {random_values({5, 37}), random_values({}, 1, 2)},
                .gradient = -1});
    }
}

TEST(Weigh, RefusesAWeightThatIsNoScalarOfTheSameType) {
  expect_refused(with(weigh), {{{4}}, {{1}}}, "Weigh");
  expect_refused(with(unweigh), {{{4}}, {{}, DType::kF64}}, "cast");
  expect_refused(with(if_counted), {{{4}, DType::kI32}, {{}, DType::kI32}}, "Counted");
}

}  // namespace weigh_test
}  // namespace belfry
