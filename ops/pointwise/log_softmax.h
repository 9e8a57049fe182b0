// LogSoftmax and LogSumExp, which neither overflow nor lose small differences. f32 and f64.
#pragma once
#include "belfry/ops/reduce.h"

namespace belfry {

// These take rows: x of rank 2 or more, along its last axis, which LogSumExp keeps as 1.
extern const Op kLogSoftmax;
extern const Op kLogSumExp;
// dy, y -> dx = dy - e^y sum(dy).
extern const Op kLogSoftmaxGrad;

// x - log(sum(e^x)) along an axis, which may be negative (from the last). -inf alone gives NaN, as
// does its gradient, so it does in PyTorch: where all of a row may be hidden, hide by a large
// number.
Output log_softmax(Output x, int axis = -1, At at = {});
// log(sum(e^x)) along an axis. Nothing, or -inf alone, gives -inf.
Output logsumexp(Output x, int axis = -1, ReducedAxes kept = ReducedAxes::kDropped, At at = {});

}  // namespace belfry
