// SparseSoftmaxCrossEntropy: the loss of classifiers.
#pragma once
#include <limits>

#include "belfry/framework/graph/graph.h"

namespace belfry {

inline constexpr std::int64_t kNoLabel = std::numeric_limits<std::int64_t>::min();

struct CrossEntropyOptions {
  // In [0, 1]: this share of the target is spread evenly over all classes (Szegedy et al. 2016).
  double smoothing = 0;
  // Rows with this label have loss and gradient 0, whatever their logits; it need not be a class.
  std::int64_t ignored = kNoLabel;

  bool ignores(std::int64_t label) const { return label == ignored && label != kNoLabel; }
};

// logits [n, c] f32 or f64, labels [n] i32 or i64 -> [n]: -log(softmax(logits)[label]). With
// smoothing it is this loss times 1 - smoothing, plus smoothing times the mean loss over all
// classes. A run fails with InvalidArgument, naming the op, row and value, if a label is neither in
// [0, c) nor ignored.
extern const Op kSparseSoftmaxCrossEntropy;
Output sparse_softmax_cross_entropy(Output logits, Output labels, CrossEntropyOptions options = {},
                                    At at = {});

// logits, labels, dy [n] -> (softmax(logits) - target) dy.
extern const Op kSparseSoftmaxCrossEntropyGrad;

// The mean of sparse_softmax_cross_entropy over the batch: a scalar. Throws InvalidArgument if
// options.ignored is set: the mean over the rows that count needs the batches of all devices, as
// cross_entropy(tower, ...) of towers/weighted_mean.h takes them.
Output cross_entropy(Output logits, Output labels, CrossEntropyOptions options = {}, At at = {});

}  // namespace belfry
