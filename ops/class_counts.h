// ClassCounts, ScoreCounts: what metrics of classifiers count. Counts are f64, so those of parts of
// a batch add up exactly, in any order.
#pragma once
#include <cstdint>

#include "belfry/framework/graph/graph.h"

namespace belfry {

enum class ClassCountsOf : std::uint8_t {
  kClasses,    // [3, c]: rows with the class as label, as prediction, and as both
  kConfusion,  // [c, c + 1]: rows by label and prediction; the last column has no prediction
  kTopK,       // [2]: rows whose label is among the k largest logits, and all rows
};

struct ClassCountsOptions {
  ClassCountsOf of = ClassCountsOf::kClasses;
  int k = 1;  // from 1 to the number of classes
};

// logits [n, c] f32 or f64, labels [n] i32 or i64 -> counts f64. The prediction is the largest
// logit, of equal ones the first. A row with a NaN has none. A row whose label is no class, such as
// -1, does not count at all.
extern const Op kClassCounts;
Output class_counts(Output logits, Output labels, ClassCountsOptions options = {}, At at = {});

struct ScoreCountsOptions {
  // The first has the scores below `low`, the last those from `high` on. The others divide the
  // interval between alike; if there are two buckets, `low` and `high` are one threshold.
  int buckets = 2;
  double low = 0.5, high = 0.5;
};

// scores f32 or f64, labels i32, i64, f32 or f64 of the same shape -> counts f64 [2, buckets]:
// scores with label 0 and with label 1. Scores with other labels do not count. All counts are NaN
// if a score that counts is.
extern const Op kScoreCounts;
Output score_counts(Output scores, Output labels, ScoreCountsOptions options = {}, At at = {});

}  // namespace belfry
