#include "belfry/ops/updates/sgd_update.h"

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
