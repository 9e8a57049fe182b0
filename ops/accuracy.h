// Accuracy: how many rows are classified correctly.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// logits [n, c] f32 or f64, labels [n] i32 or i64 -> the fraction of rows whose largest logit (the
// first of equal ones) is at the label, a scalar f32. A row with a NaN counts as wrong. Batches
// combine by weighting with n. NaN for n = 0.
extern const Op kAccuracy;
Output accuracy(Output logits, Output labels, At at = {});

}  // namespace belfry
