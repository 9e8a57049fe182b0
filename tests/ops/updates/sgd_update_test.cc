#include "belfry/ops/updates/sgd_update.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace sgd_update_test {

const UpdateBuilder kBuild = [](std::span<const Variable> v, Inputs x) -> Node& {
  return sgd_update(v[0], x[0], x[1]);
};

TEST(SgdUpdate, SubtractsTheScaledGradient) {
  const std::vector<Tensor> after = update(kBuild, {Tensor({2}, std::vector<float>{1, 2})},
                                           {Tensor({2}, std::vector<float>{4, -8}), Tensor(0.5f)});
  EXPECT_EQ(doubles(after[0]), (std::vector<double>{-1, 6}));
}

TEST(SgdUpdate, KeepsItsContract) {
  check_update(kBuild, {random_values({7, 9})}, {random_values({7, 9}, -1, 1, 2), Tensor(0.1f)});
}

UpdateBuilder with_decay(double decay) {
  return [=](std::span<const Variable> v, Inputs x) -> Node& {
    return sgd_update(v[0], x[0], x[1], {.weight_decay = decay});
  };
}

TEST(SgdUpdate, AddsWeightDecayToTheGradient) {
  const std::vector<Tensor> after =
      update(with_decay(0.25), {Tensor({2}, std::vector<float>{8, -4})},
             {Tensor({2}, std::vector<float>{4, 0}), Tensor(0.5f)});
  EXPECT_EQ(doubles(after[0]), (std::vector<double>{5, -3.5}));
  check_update(with_decay(0.1), {random_values({7, 9})},
               {random_values({7, 9}, -1, 1, 2), Tensor(0.1f)});
}

// Without decay an infinite weight stays one, and a zero keeps its sign.
TEST(SgdUpdate, WithoutDecayDoesNotMultiplyTheWeight) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<Tensor> variables{Tensor({2}, std::vector<float>{kInfinity, -0.0f})};
  EXPECT_EQ(update(kBuild, variables, {Tensor({2}, std::vector<float>{1, 0}), Tensor(0.5f)}),
            variables);
}

TEST(SgdUpdate, RefusesADecayThatIsNegativeOrInfinite) {
  for (const double decay : {-0.1, std::numeric_limits<double>::infinity()})
    expect_update_refused(with_decay(decay), {random_values({4})},
                          {random_values({4}), Tensor(0.1f)},
                          "the weight decay must be a finite number >= 0, not ");
}

TEST(SgdUpdate, RefusesGradientsOfAnotherShape) {
  expect_update_refused(kBuild, {random_values({4})}, {random_values({5}), Tensor(0.1f)},
                        "the variable is f32[4], but its gradient is f32[5]");
}

TEST(SgdUpdate, RefusesARatePerElement) {
  expect_update_refused(kBuild, {random_values({4})}, {random_values({4}), random_values({4})},
                        "the learning rate is f32[4]");
}

}  // namespace sgd_update_test
}  // namespace belfry
