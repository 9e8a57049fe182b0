#include "belfry/ops/accuracy.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace accuracy_test {

const Builder kBuild = [](Inputs x) { return accuracy(x[0], x[1]); };

TEST(Accuracy, IsTheFractionOfRowsThatAreRight) {
  const Tensor logits({4, 3}, std::vector<float>{1, 2, 3, 3, 2, 1, 0, 5, 0, 9, 0, 0});
  const Tensor labels({4}, std::vector<std::int32_t>{2, 0, 1, 2});
  EXPECT_EQ(compute(kBuild, {logits, labels}).item<float>(), 0.75f);
}

TEST(Accuracy, TheFirstOfEqualLogitsCounts) {
  const Tensor logits({2, 2}, std::vector<double>{1, 1, 1, 1});
  const Tensor labels({2}, std::vector<std::int64_t>{0, 1});
  EXPECT_EQ(compute(kBuild, {logits, labels}).item<float>(), 0.5f);
}

TEST(Accuracy, ARowWithNaNIsWrong) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor logits({2, 2}, std::vector<float>{nan, 1, 1, nan});
  const Tensor labels({2}, std::vector<std::int32_t>{1, 0});
  EXPECT_EQ(compute(kBuild, {logits, labels}).item<float>(), 0.0f);
}

TEST(Accuracy, KeepsItsContract) {
  const Tensor labels({5}, std::vector<std::int32_t>{0, 6, 3, 3, 1});
  check_op(
      {.build = kBuild, .inputs = {random_values({5, 7}), labels}, .gradient = -1, .nan = false});
}

TEST(Accuracy, RefusesVectors) { expect_refused(kBuild, {{{10}}, {{10}, DType::kI32}}, "rank 2"); }

}  // namespace accuracy_test
}  // namespace belfry
