// SparseSoftmaxCrossEntropy: the loss of classifiers.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// logits [n, c] f32 or f64, labels [n] i32 or i64 -> [n]: -log(softmax(logits)[label]). A run fails
// with InvalidArgument, naming the op, row and value, if a label is not in [0, c).
extern const Op kSparseSoftmaxCrossEntropy;
Output sparse_softmax_cross_entropy(Output logits, Output labels, At at = {});

// logits, labels, dy [n] -> (softmax(logits) - one_hot(labels)) dy.
extern const Op kSparseSoftmaxCrossEntropyGrad;

// The mean of sparse_softmax_cross_entropy over the batch: a scalar.
Output cross_entropy(Output logits, Output labels, At at = {});

}  // namespace belfry
