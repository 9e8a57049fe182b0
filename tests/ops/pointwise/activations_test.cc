#include "belfry/ops/pointwise/activations.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace activations_test {

const Builder kLeaky = [](Inputs x) { return leaky_relu(x[0], 0.2); };
const Builder kElu = [](Inputs x) { return elu(x[0], 1.5); };
const Builder kHardSigmoid = [](Inputs x) { return hard_sigmoid(x[0]); };
const Builder kHardSwish = [](Inputs x) { return hard_swish(x[0]); };
const Builder kSoftplus = [](Inputs x) { return softplus(x[0], 2); };
const Builder kAllActivations[] = {kLeaky, kElu, kHardSigmoid, kHardSwish, kSoftplus};

std::vector<double> values(const Builder& build, std::vector<double> x) {
  const auto n = static_cast<std::int64_t>(x.size());
  return doubles(compute(build, {Tensor({n}, std::move(x))}));
}
std::vector<double> slopes(const Builder& build, std::vector<double> x) {
  return values([&](Inputs in) { return gradients(build(in)[0], {in[0]})[0]; }, std::move(x));
}

TEST(Activate, HasValuesKnownByHand) {
  EXPECT_EQ(values(kLeaky, {-5, 0, 3}), (std::vector<double>{-1, 0, 3}));
  EXPECT_EQ(values(kHardSigmoid, {-4, -3, 0, 1.5, 3, 9}),
            (std::vector<double>{0, 0, 0.5, 0.75, 1, 1}));
  EXPECT_EQ(values(kHardSwish, {-4, -3, 0, 1.5, 3, 9}),
            (std::vector<double>{0, 0, 0, 1.125, 3, 9}));
  const std::vector<double> y = values(kElu, {-2, 0, 3});
  EXPECT_NEAR(y[0], 1.5 * std::expm1(-2), 1e-15);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 3);
}

TEST(Activate, SoftplusNeitherOverflowsNorVanishes) {
  const std::vector<double> y = values(kSoftplus, {-300, -20, 0, 20, 400});
  EXPECT_GT(y[0], 0);
  EXPECT_NEAR(y[1], std::exp(-40.0) / 2, 1e-32);
  EXPECT_NEAR(y[2], std::log(2.0) / 2, 1e-16);
  EXPECT_EQ(y[3], 20);
  EXPECT_EQ(y[4], 400);
}

// As PyTorch has them.
TEST(Activate, HasSlopesAtKinks) {
  EXPECT_EQ(slopes(kLeaky, {-1, 0, 1}), (std::vector<double>{0.2, 0.2, 1}));
  EXPECT_EQ(slopes(kElu, {0, 1}), (std::vector<double>{1.5, 1}));
  EXPECT_EQ(slopes(kHardSigmoid, {-4, -3, 0, 3, 4}), (std::vector<double>{0, 0, 1.0 / 6, 0, 0}));
  EXPECT_EQ(slopes(kHardSwish, {-4, -3, 0, 3, 4}), (std::vector<double>{0, 0, 0.5, 1, 1}));
}

TEST(Activate, KeepsItsContract) {
  for (const Builder& build : kAllActivations) {
    check_op({.build = build, .inputs = {random_values({5, 7}, -6, 6)}});
    check_op({.build = build, .inputs = {random_values({}, -2, -1)}});
  }
}

TEST(Activate, GradientsHaveGradients) {
  for (const Builder& build : kAllActivations) {
    const Builder twice = [&](Inputs x) {
      return Built(gradients(build(x)[0], {x[0]}, {.initial = {x[1]}}));
    };
    check_op({.build = twice,
              .inputs = {random_values({4, 9}, -6, 6), random_values({4, 9}, -1, 1, 2)},
              .f32 = 2e-6,
              .unknown = false});
  }
}

TEST(Activate, RefusesWrongParametersAndTypes) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_refused([=](Inputs x) { return elu(x[0], nan); }, {{{2}}}, "its parameter is nan");
  expect_refused([](Inputs x) { return softplus(x[0], 0); }, {{{2}}},
                 "beta is 0, but must be positive");
  expect_refused(kHardSwish, {{{2}, DType::kI32}}, "Activate");
}

}  // namespace activations_test
}  // namespace belfry
