// Losses of classifiers, besides sparse_softmax_cross_entropy() and sigmoid_cross_entropy().
#pragma once
#include <vector>

#include "belfry/ops/losses/regression.h"

namespace belfry {

// max(1 - t p, 0) for targets t of -1 and 1, of the shape of the predictions p.
Output hinge_loss(Output predictions, Output targets, PlainLossOptions options = {}, At at = {});

// logits and targets [n, ..., c]: -sum(t log(softmax(x))) over the last axis, for targets that are
// probabilities, or any weights of classes -> [n, ...], reduced. Both have gradients.
Output softmax_cross_entropy(Output logits, Output targets, PlainLossOptions options = {},
                             At at = {});

struct BinaryCrossEntropyOptions {
  // Multiplies the loss of ones: one number, or one for each element of the last axis.
  std::vector<double> pos_weight = {};
  LossReduction reduction = LossReduction::kMean;
};
// sigmoid_cross_entropy(), reduced: -w t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)).
Output binary_cross_entropy_with_logits(Output logits, Output targets,
                                        BinaryCrossEntropyOptions options = {}, At at = {});

struct FocalOptions {
  double alpha = 0.25;  // the weight of ones, and 1 - alpha that of zeros; negative: no weights
  double gamma = 2;     // at least 0
  LossReduction reduction = LossReduction::kMean;
};
// The focal loss (Lin et al. 2017) of logits and targets 0 or 1: sigmoid_cross_entropy() times (1 -
// p)^gamma, where p is the probability given to the target.
Output sigmoid_focal_loss(Output logits, Output targets, FocalOptions options = {}, At at = {});

struct KlOptions {
  bool log_target = false;  // targets are logarithms of probabilities, too
  // kBatchMean is the divergence itself, where a row is a distribution.
  LossReduction reduction = LossReduction::kMean;
};
// t (log(t) - x) for logarithms x of predicted probabilities, as log_softmax() gives them, and
// targets t that are probabilities: the divergence of Kullback and Leibler by elements. 0 log(0) is
// 0.
Output kl_div(Output log_probabilities, Output targets, KlOptions options = {}, At at = {});

}  // namespace belfry
