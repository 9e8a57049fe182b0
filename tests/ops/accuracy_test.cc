#include "belfry/ops/accuracy.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
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

Builder top(int k) {
  return [k](Inputs x) { return top_k_accuracy(x[0], x[1], k); };
}

TEST(Accuracy, OfTheTopKCountsLabelsAmongTheLargest) {
  // The label is at place 0, 2, 1 and 3.
  const Tensor logits({4, 4}, std::vector<float>{9, 1, 2, 3, 5, 7, 6, 1, 4, 2, 5, 1, 3, 2, 1, 0});
  const Tensor labels({4}, std::vector<std::int32_t>{0, 0, 0, 3});
  const float expected[] = {0.25f, 0.5f, 0.75f, 1};
  for (const int k : {1, 2, 3, 4})
    EXPECT_EQ(compute(top(k), {logits, labels}).item<float>(), expected[k - 1]) << k;
}

TEST(Accuracy, OfTheTopKTakesTheFirstOfEqualLogits) {
  const Tensor logits({3, 3}, std::vector<double>(9, 2));
  const Tensor labels({3}, std::vector<std::int64_t>{0, 1, 2});
  EXPECT_EQ(compute(top(2), {logits, labels}).item<float>(), 2.0f / 3);
}

TEST(Accuracy, OfTheTopKCountsRowsWithNaNAndLabelsThatAreNoClassAsWrong) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor logits({4, 2}, std::vector<float>{nan, 1, 1, nan, 1, 2, 1, 2});
  const Tensor labels({4}, std::vector<std::int32_t>{1, 0, -1, 2});
  EXPECT_EQ(compute(top(2), {logits, labels}).item<float>(), 0.0f);
}

TEST(Accuracy, RefusesAKThatIsNoNumberOfClasses) {
  for (const int k : {0, 11})
    expect_refused(top(k), {{{8, 10}}, {{8}, DType::kI32}},
                   cat("k must be from 1 to the number of classes, not ", k));
}

TEST(Accuracy, KeepsItsContract) {
  const Tensor many({3}, std::vector<std::int64_t>{700, 0, 1499});
  check_op({.build = top(600),
            .inputs = {random_values({3, 1500}), many},
            .gradient = -1,
            .nan = false});
  const Tensor labels({5}, std::vector<std::int32_t>{0, 6, 3, 3, 1});
  check_op(
      {.build = kBuild, .inputs = {random_values({5, 7}), labels}, .gradient = -1, .nan = false});
}

// Logits that rounding makes equal count by their places.
TEST(Accuracy, Of16BitLogitsIsThatOfTheirValues) {
  const Tensor labels({64}, std::vector<std::int32_t>(64, 20));
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Tensor logits = to(random_values({64, 40}, -1, 1), dtype);
    for (const int k : {1, 10, 20, 40})
      EXPECT_EQ(compute(top(k), {logits, labels}),
                compute(top(k), {to(logits, DType::kF32), labels}))
          << k;
  }
}

TEST(Accuracy, RefusesVectors) { expect_refused(kBuild, {{{10}}, {{10}, DType::kI32}}, "rank 2"); }

TEST(Accuracy, RefusesLabelsThatDoNotMatch) {
  expect_refused(top(2), {{{8, 10}}, {{9}, DType::kI32}}, "logits [8,10] and labels [9]");
  expect_refused(top(2), {{{8, 10}}, {{8}, DType::kF32}}, "labels are i32 or i64, not f32");
}

}  // namespace accuracy_test
}  // namespace belfry
