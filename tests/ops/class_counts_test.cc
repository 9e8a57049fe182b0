#include "belfry/ops/class_counts.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace class_counts_test {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Builder counts_of(ClassCountsOptions options) {
  return [=](Inputs x) { return class_counts(x[0], x[1], options); };
}
Builder scores_in(ScoreCountsOptions options) {
  return [=](Inputs x) { return score_counts(x[0], x[1], options); };
}

// Predictions 2, 0 (the first of equal logits), 1, none, 0, 2; the last two labels are no class.
const Tensor kLogits({6, 3},
                     std::vector<float>{1, 2, 3, 5, 5, 1, 0, 5, 0, kNaN, 1, 2, 9, 0, 0, 0, 0, 9});
const Tensor kLabels({6}, std::vector<std::int32_t>{2, 1, 1, 0, -1, 3});

TEST(ClassCounts, CountsLabelsPredictionsAndBoth) {
  EXPECT_EQ(doubles(compute(counts_of({}), {kLogits, kLabels})),
            (std::vector<double>{1, 2, 1, 1, 1, 1, 0, 1, 1}));
}

TEST(ClassCounts, CountsRowsByLabelAndPrediction) {
  EXPECT_EQ(doubles(compute(counts_of({.of = ClassCountsOf::kConfusion}), {kLogits, kLabels})),
            (std::vector<double>{0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0}));
}

TEST(ClassCounts, CountsRowsWhoseLabelIsAmongTheKLargest) {
  const auto right = [](int k) {
    return doubles(compute(counts_of({.of = ClassCountsOf::kTopK, .k = k}), {kLogits, kLabels}));
  };
  EXPECT_EQ(right(1), (std::vector<double>{2, 4}));
  EXPECT_EQ(right(2), (std::vector<double>{3, 4}));
  EXPECT_EQ(right(3), (std::vector<double>{3, 4}));
}

TEST(ClassCounts, KeepsItsContract) {
  const Tensor labels({5}, std::vector<std::int64_t>{0, 6, 3, 3, 1});
  for (const ClassCountsOf of :
       {ClassCountsOf::kClasses, ClassCountsOf::kConfusion, ClassCountsOf::kTopK})
    check_op({.build = counts_of({.of = of, .k = 3}),
              .inputs = {random_values({5, 7}), labels},
              .gradient = -1,
              .nan = false});
}

TEST(ClassCounts, RefusesWhatItCannotCount) {
  expect_refused(counts_of({.k = 11}), {{{8, 10}}, {{8}, DType::kI32}},
                 "k must be from 1 to the number of classes, not 11");
  expect_refused(counts_of({}), {{{8, kUnknownSize}}, {{8}, DType::kI32}},
                 "the number of classes must be known");
  expect_refused(counts_of({}), {{{8, 10}}, {{9}, DType::kI32}}, "logits [8,10] and labels [9]");
}

TEST(ScoreCounts, CountsScoresOfBothLabelsByBucket) {
  const Tensor scores({7}, std::vector<float>{-1, 0.25f, 0.5f, 0.99f, 1, 7, 0.1f});
  const Tensor labels({7}, std::vector<std::int32_t>{0, 1, 1, 0, 1, 1, 2});
  EXPECT_EQ(doubles(compute(scores_in({.buckets = 4, .low = 0, .high = 1}), {scores, labels})),
            (std::vector<double>{1, 0, 1, 0, 0, 1, 1, 2}));
  EXPECT_EQ(doubles(compute(scores_in({}), {scores, labels})), (std::vector<double>{1, 1, 1, 3}));
}

TEST(ScoreCounts, CompareWithAThresholdOfAnyScale) {
  for (const double scale : {1e-300, 1e-20, 1., 1e20, 1e300})
    for (const double threshold : {0., scale, -scale}) {
      const Tensor scores(
          {3}, std::vector<double>{threshold - scale * 1e-6, threshold, threshold + scale * 1e-6});
      const Tensor labels({3}, std::vector<std::int32_t>{1, 1, 1});
      EXPECT_EQ(
          doubles(compute(scores_in({.low = threshold, .high = threshold}), {scores, labels})),
          (std::vector<double>{0, 0, 1, 2}))
          << threshold;
    }
}

TEST(ScoreCounts, TakesLabelsOfEveryType) {
  const Tensor scores({2, 2}, std::vector<double>{0.1, 0.9, 0.2, 0.8});
  const std::vector<double> expected{1, 0, 1, 1};
  const Tensor labels({2, 2}, std::vector<float>{0, 1, 1, 0.5f});
  for (const DType dtype : {DType::kF32, DType::kF64})
    EXPECT_EQ(doubles(compute(scores_in({}), {scores, to(labels, dtype)})), expected);
  const Tensor numbers({2, 2}, std::vector<std::int64_t>{0, 1, 1, 2});
  EXPECT_EQ(doubles(compute(scores_in({}), {scores, numbers})), expected);
}

TEST(ScoreCounts, AreNaNForAScoreThatIs) {
  const Tensor scores({2}, std::vector<float>{0.5f, kNaN});
  for (const std::int32_t label : {1, 2}) {
    const Tensor labels({2}, std::vector<std::int32_t>{1, label});
    for (const double count : doubles(compute(scores_in({}), {scores, labels})))
      EXPECT_EQ(std::isnan(count), label == 1);
  }
}

TEST(ScoreCounts, KeepsItsContract) {
  const Tensor labels({5, 2}, std::vector<std::int32_t>{0, 1, 1, 0, 1, 0, 0, 1, 1, 1});
  check_op({.build = scores_in({.buckets = 5, .low = -1.5, .high = 1.5}),
            .inputs = {random_values({5, 2}), labels},
            .gradient = -1});
}

TEST(ScoreCounts, RefusesWhatItCannotCount) {
  expect_refused(scores_in({.buckets = 1}), {{{8}}, {{8}, DType::kI32}}, "1 buckets");
  for (const ScoreCountsOptions& wrong :
       {ScoreCountsOptions{.low = 1}, {.buckets = 3}, {.buckets = 2, .low = 0, .high = 1}})
    expect_refused(scores_in(wrong), {{{8}}, {{8}, DType::kI32}}, "no interval");
  expect_refused(scores_in({}), {{{8}}, {{8, 1}, DType::kI32}}, "must have one shape");
  expect_refused(scores_in({}), {{{8}}, {{8}, DType::kU8}}, "labels are i32, i64 or floating");
}

}  // namespace class_counts_test
}  // namespace belfry
