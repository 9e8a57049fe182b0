// CumSum: sums of all elements up to each one.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kCumSum;

struct CumSumOptions {
  int axis = 0;
  bool exclusive = false;  // without the element itself, so the first sum is 0
  bool reverse = false;    // from the last element back
};

// y[i] = x[0] + ... + x[i] along an axis, as tf.cumsum. f32 f64 i32 i64; f32 is summed in f64 and
// rounded once per element.
Output cumsum(Output x, CumSumOptions options = {}, At at = {});

}  // namespace belfry
