#include "belfry/ops/updates/momentum_update.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace momentum_update_test {

UpdateBuilder with(double momentum) {
  return [=](std::span<const Variable> v, Inputs x) -> Node& {
    return momentum_update(v[0], v[1], x[0], x[1], {.momentum = momentum});
  };
}

TEST(MomentumUpdate, AccumulatesGradients) {
  const std::vector<Tensor> after = update(
      with(0.5), {Tensor({2}, std::vector<float>{1, 2}), Tensor({2}, std::vector<float>{4, 0})},
      {Tensor({2}, std::vector<float>{2, -8}), Tensor(0.25f)});
  EXPECT_EQ(doubles(after[1]), (std::vector<double>{4, -8}));
  EXPECT_EQ(doubles(after[0]), (std::vector<double>{0, 4}));
}

TEST(MomentumUpdate, KeepsItsContract) {
  check_update(with(0.9), {random_values({7, 9}), random_values({7, 9}, -1, 1, 3)},
               {random_values({7, 9}, -1, 1, 2), Tensor(0.1f)});
}

UpdateBuilder with_options(MomentumUpdateOptions options) {
  return [=](std::span<const Variable> v, Inputs x) -> Node& {
    return momentum_update(v[0], v[1], x[0], x[1], options);
  };
}

TEST(MomentumUpdate, LooksAheadInNesterovsForm) {
  // sum = 0.5 * 4 + 2 = 4; 1 - 0.25 * (2 + 0.5 * 4) = 0.
  const std::vector<Tensor> after =
      update(with_options({.momentum = 0.5, .form = MomentumForm::kNesterov}),
             {Tensor({1}, std::vector<float>{1}), Tensor({1}, std::vector<float>{4})},
             {Tensor({1}, std::vector<float>{2}), Tensor(0.25f)});
  EXPECT_EQ(doubles(after[1]), (std::vector<double>{4}));
  EXPECT_EQ(doubles(after[0]), (std::vector<double>{0}));
}

TEST(MomentumUpdate, AddsWeightDecayToTheGradient) {
  // g = 2 + 0.5 * 4 = 4; sum = 0.5 * 8 + 4 = 8; 4 - 0.25 * 8 = 2.
  const std::vector<Tensor> after =
      update(with_options({.momentum = 0.5, .weight_decay = 0.5}),
             {Tensor({1}, std::vector<float>{4}), Tensor({1}, std::vector<float>{8})},
             {Tensor({1}, std::vector<float>{2}), Tensor(0.25f)});
  EXPECT_EQ(doubles(after[1]), (std::vector<double>{8}));
  EXPECT_EQ(doubles(after[0]), (std::vector<double>{2}));
}

TEST(MomentumUpdate, KeepsItsContractWithEveryOption) {
  for (const MomentumForm form : {MomentumForm::kPlain, MomentumForm::kNesterov})
    check_update(with_options({.weight_decay = 0.1, .form = form}),
                 {random_values({7, 9}), random_values({7, 9}, -1, 1, 3)},
                 {random_values({7, 9}, -1, 1, 2), Tensor(0.1f)});
}

TEST(MomentumUpdate, RefusesANegativeDecay) {
  expect_update_refused(
      with_options({.weight_decay = -1}), {random_values({4}), random_values({4})},
      {random_values({4}), Tensor(0.1f)}, "the weight decay must be a finite number >= 0, not -1");
}

TEST(MomentumUpdate, RefusesAMomentumOfOne) {
  expect_update_refused(with(1), {random_values({4}), random_values({4})},
                        {random_values({4}), Tensor(0.1f)}, "momentum must be in [0, 1), not 1");
}

TEST(MomentumUpdate, RefusesSlotsOfAnotherShape) {
  expect_update_refused(with(0.9), {random_values({4}), random_values({2, 2})},
                        {random_values({4}), Tensor(0.1f)}, "but its slot is f32[2,2]");
}

}  // namespace momentum_update_test
}  // namespace belfry
