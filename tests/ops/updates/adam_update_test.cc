#include "belfry/ops/updates/adam_update.h"

#include <cmath>

#include <gtest/gtest.h>

#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace adam_update_test {

// Inputs: step, gradient, rate.
const UpdateBuilder kBuild = [](std::span<const Variable> v, Inputs x) -> Node& {
  return adam_update(v[0], v[1], v[2], x[0], x[1], x[2]);
};

Tensor scalars(double value) { return Tensor({1}, std::vector<double>{value}); }
Tensor count(std::int64_t step) { return Tensor(step); }

TEST(AdamUpdate, TheFirstStepHasTheSizeOfTheRate) {
  const std::vector<Tensor> after =
      update(kBuild, {scalars(1), scalars(0), scalars(0)}, {count(1), scalars(-300), Tensor(0.25)});
  EXPECT_NEAR(after[0].item<double>(), 1.25, 1e-9);
  EXPECT_NEAR(after[1].item<double>(), -30, 1e-12);
  EXPECT_NEAR(after[2].item<double>(), 90, 1e-12);
}

TEST(AdamUpdate, FollowsTensorFlowsForm) {
  const std::vector<Tensor> after = update(kBuild, {scalars(2), scalars(0.5), scalars(0.04)},
                                           {count(3), scalars(1), Tensor(0.1)});
  const double m = 0.9 * 0.5 + 0.1, v = 0.999 * 0.04 + 0.001;
  const double rate = 0.1 * std::sqrt(1 - std::pow(0.999, 3)) / (1 - std::pow(0.9, 3));
  EXPECT_NEAR(after[0].item<double>(), 2 - rate * m / (std::sqrt(v) + 1e-8), 1e-14);
  EXPECT_NEAR(after[1].item<double>(), m, 1e-15);
  EXPECT_NEAR(after[2].item<double>(), v, 1e-15);
}

UpdateBuilder with_options(AdamUpdateOptions options) {
  return [=](std::span<const Variable> v, Inputs x) -> Node& {
    return adam_update(v[0], v[1], v[2], x[0], x[1], x[2], options);
  };
}

// PyTorch's form, written as in its documentation; epsilon is large enough to count.
TEST(AdamUpdate, FollowsPyTorchsAdamW) {
  const AdamUpdateOptions options{
      .epsilon = 0.1, .weight_decay = 0.5, .form = AdamEpsilon::kToCorrectedRoot};
  const std::vector<Tensor> after =
      update(with_options(options), {scalars(2), scalars(0.5), scalars(0.04)},
             {count(3), scalars(1), Tensor(0.1)});
  const double m = 0.9 * 0.5 + 0.1, v = 0.999 * 0.04 + 0.001;
  const double kept = 2 - 0.1 * 0.5 * 2;
  const double m_hat = m / (1 - std::pow(0.9, 3)), v_hat = v / (1 - std::pow(0.999, 3));
  EXPECT_NEAR(after[0].item<double>(), kept - 0.1 * m_hat / (std::sqrt(v_hat) + 0.1), 1e-14);
  EXPECT_NEAR(after[1].item<double>(), m, 1e-15);
  EXPECT_NEAR(after[2].item<double>(), v, 1e-15);
}

TEST(AdamUpdate, KeepsItsContractWithWeightDecay) {
  check_update(
      with_options({.weight_decay = 0.1, .form = AdamEpsilon::kToCorrectedRoot}),
      {random_values({7, 9}), random_values({7, 9}, -1, 1, 3), random_values({7, 9}, 0.1, 1, 4)},
      {count(17), random_values({7, 9}, -1, 1, 2), Tensor(0.1f)});
}

TEST(AdamUpdate, RefusesANegativeDecay) {
  expect_update_refused(with_options({.weight_decay = -1}),
                        {random_values({4}), random_values({4}), random_values({4})},
                        {count(1), random_values({4}), Tensor(0.1f)},
                        "the weight decay must be a finite number >= 0, not -1");
}

TEST(AdamUpdate, KeepsItsContract) {
  check_update(
      kBuild,
      {random_values({7, 9}), random_values({7, 9}, -1, 1, 3), random_values({7, 9}, 0.1, 1, 4)},
      {count(17), random_values({7, 9}, -1, 1, 2), Tensor(0.1f)});
}

TEST(AdamUpdate, RefusesAStepThatIsNoI64) {
  expect_update_refused(kBuild, {random_values({4}), random_values({4}), random_values({4})},
                        {Tensor(1.0f), random_values({4}), Tensor(0.1f)},
                        "the step is f32[], but a scalar i64 is needed");
}

TEST(AdamUpdate, RefusesStepZeroWhenItRuns) {
  EXPECT_THROW(
      update(kBuild, {scalars(1), scalars(0), scalars(0)}, {count(0), scalars(1), Tensor(0.25)}),
      InvalidArgument);
}

}  // namespace adam_update_test
}  // namespace belfry
