// ClassWeights: the weight of each label's class; and cross entropy with such weights.
#pragma once
#include <vector>

#include "belfry/ops/sparse_softmax_cross_entropy.h"

namespace belfry {

struct ClassWeightsOptions {
  std::int64_t ignored = kNoLabel;  // rows with this label have weight 0
};

// weights [c] f32 or f64, labels [n] i32 or i64 -> [n] of the weights' type. A run fails with
// InvalidArgument, naming the op, row and value, if a label is neither in [0, c) nor ignored. The
// weights are constants to gradients.
extern const Op kClassWeights;
Output class_weights(Output weights, Output labels, ClassWeightsOptions options = {}, At at = {});

struct WeightedCrossEntropyOptions {
  std::vector<double> class_weights = {};  // one for each class; empty: all 1
  double smoothing = 0;                    // as in CrossEntropyOptions
  std::int64_t ignored = kNoLabel;
};

// sparse_softmax_cross_entropy() of logits [n, c], with each class's share of the loss times its
// weight -> [n], as PyTorch's cross_entropy with weights and no reduction. The weighted mean of
// them is cross_entropy() of towers/weighted_mean.h.
Output weighted_cross_entropy(Output logits, Output labels, WeightedCrossEntropyOptions options,
                              At at = {});
// What the weighted mean divides by, in sum: the weight of the class of each label, 0 if ignored.
Output label_weights(Output logits, Output labels, const WeightedCrossEntropyOptions& options,
                     At at = {});

// [n]. A constant.
Output constant_vector(Graph& graph, const std::vector<double>& values, DType dtype, At at = {});

}  // namespace belfry
