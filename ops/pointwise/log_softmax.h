// LogSoftmax and LogSumExp, which neither overflow nor lose small differences. f32 and f64.
#pragma once
#include "belfry/ops/reduce.h"

namespace belfry {

// These take rows: x of rank 2 or more, along its last axis, which LogSumExp keeps as 1.
extern const Op kLogSoftmax;
extern const Op kLogSumExp;
// dy, y -> dx = dy - e^y sum(dy).
extern const Op kLogSoftmaxGrad;

// x - log(sum(e^x)) along an axis, which may be negative (from the last). A row of -inf alone gives
// NaN, and so does its gradient, as in PyTorch. Where a whole row may be hidden, hide it by a large
// negative number.
Output log_softmax(Output x, int axis = -1, At at = {});
// log(sum(e^x)) along an axis. Nothing, or -inf alone, gives -inf.
Output logsumexp(Output x, int axis = -1, ReducedAxes kept = ReducedAxes::kDropped, At at = {});

}  // namespace belfry
