// Accuracy: how many rows are classified correctly.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

struct AccuracyOptions {
  int k = 1;  // from 1 to the number of classes
};

// logits [n, c] f32 or f64, labels [n] i32 or i64 -> the fraction of rows whose label is among the
// k largest logits (of equal ones the first is larger), a scalar f32. A row with a NaN counts as
// wrong, and so does a label that is not a class. To combine batches, weight them by n. NaN for n =
// 0.
extern const Op kAccuracy;
Output accuracy(Output logits, Output labels, At at = {});  // k = 1
Output top_k_accuracy(Output logits, Output labels, int k, At at = {});

}  // namespace belfry
