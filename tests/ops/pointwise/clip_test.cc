#include "belfry/ops/pointwise/clip.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace clip_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Builder between(double low, double high) {
  return [=](Inputs x) { return clip(x[0], low, high); };
}
Builder slope(double low, double high) {
  return [=](Inputs x) { return gradients(clip(x[0], low, high), {x[0]})[0]; };
}

const Tensor kNumbers({6}, std::vector<double>{1, -2, 6, -6, kInfinity, -kInfinity});

TEST(Clip, CutsElementsOffAtTheLimits) {
  EXPECT_EQ(doubles(compute(between(-2, 3), {kNumbers})),
            (std::vector<double>{1, -2, 3, -2, 3, -2}));
  EXPECT_EQ(doubles(compute(between(0, kInfinity), {kNumbers})),
            (std::vector<double>{1, 0, 6, 0, kInfinity, 0}));
}

TEST(Clip, PassesGradientsWithinTheLimitsAndAtThem) {
  EXPECT_EQ(doubles(compute(slope(-2, 6), {kNumbers})), (std::vector<double>{1, 1, 1, 0, 0, 0}));
}

TEST(Clip, KeepsItsContract) {
  for (const double limit : {0.0, 0.5})
    check_op({.build = between(-limit, 2 * limit), .inputs = {random_values({5, 37}, -1, 1)}});
}

TEST(Clip, RefusesLimitsOutOfOrderAndIntegers) {
  expect_refused(between(2, 1), {{{4}}}, "the lower limit 2 is not below the upper one, 1");
  expect_refused(between(0, 1), {{{4}, DType::kI32}}, "Clip");
}

}  // namespace clip_test
}  // namespace belfry
