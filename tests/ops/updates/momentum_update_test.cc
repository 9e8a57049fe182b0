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
