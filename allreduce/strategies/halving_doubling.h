// halving_doubling: pairs of towers exchange halves, at distances 1, 2, 4, ... and back.
#pragma once
#include "belfry/allreduce/strategy.h"

namespace belfry {

// With P the largest power of two up to K: towers P, P + 1, ... first send their tensors to towers
// 0, 1, ..., which add them (own + theirs). Then, at distances 1, 2, ..., P / 2, towers t and
// t ^ distance halve the range of elements that they share. The lower tower sums the first half
// (longer by one if the length is odd), the other one the second, each as lower + upper tower's.
// Finished parts, divided for a mean, go back the same way and are joined at every step. At last
// towers P, ... take the whole from their partners.
//
// Canonical at powers of two, where the pairs are the nodes of the tree. Works for any K and shape;
// tf_cnn_benchmarks' rechd takes only powers of two, and only lengths that they divide. Throws
// InvalidArgument if the shape of a gradient is not fully known.
GradientTable allreduce_halving_doubling(const GradientTable& grads,
                                         Reduction reduction = Reduction::kMean, At at = {});

}  // namespace belfry
