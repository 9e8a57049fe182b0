#include "belfry/ops/softmax.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace softmax_test {

const Builder kBuild = [](Inputs x) { return softmax(x[0]); };

TEST(Softmax, NormalisesExponentials) {
  const double log3 = std::log(3.0);
  const Tensor x({2, 2}, std::vector<double>{0, log3, 5, 5});
  const std::vector<double> y = doubles(compute(kBuild, {x}));
  EXPECT_NEAR(y[0], 0.25, 1e-15);
  EXPECT_NEAR(y[1], 0.75, 1e-15);
  EXPECT_EQ(y[2], 0.5);
  EXPECT_EQ(y[3], 0.5);
}

TEST(Softmax, DoesNotOverflow) {
  const Tensor x({1, 3}, std::vector<float>{1000, 1000, -1000});
  EXPECT_EQ(doubles(compute(kBuild, {x})), (std::vector<double>{0.5, 0.5, 0}));
}

TEST(Softmax, ANaNSpoilsItsRowAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = compute(kBuild, {Tensor({2, 2}, std::vector<float>{1, nan, 1, 1})});
  EXPECT_TRUE(std::isnan(y.data<float>()[0]));
  EXPECT_TRUE(std::isnan(y.data<float>()[1]));
  EXPECT_EQ(y.data<float>()[2], 0.5f);
}

TEST(Softmax, KeepsItsContract) {
  check_op({.build = kBuild, .inputs = {random_values({5, 7})}});
  check_op({.build = kBuild, .inputs = {random_values({3, 2, 33})}});
  check_op({.build = kBuild, .inputs = {random_values({2, 1500})}});
}

TEST(Softmax, GradientsHaveGradients) {
  const Builder twice = [](Inputs x) {
    return Built(gradients(softmax(x[0]), {x[0]}, {.initial = {x[1]}}));
  };
  check_op({.build = twice,
            .inputs = {random_values({4, 6}), random_values({4, 6}, -1, 1, 2)},
            .f32 = 2e-6,
            .unknown = false});
}

TEST(Softmax, RefusesVectors) { expect_refused(kBuild, {{{4}}}, "reshape a vector to [1,n]"); }

}  // namespace softmax_test
}  // namespace belfry
