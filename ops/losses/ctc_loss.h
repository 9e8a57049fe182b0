// CtcLoss: connectionist temporal classification (Graves et al. 2006), for sequences of labels
// whose places in time are unknown, as in speech and handwriting.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/losses/loss_reduction.h"

namespace belfry {

struct CtcOptions {
  // The class that stands for no label.
  std::int64_t blank = 0;
  // A sample has an infinite loss, and NaN as gradient, if its labels do not fit in its time: each
  // needs a step, and equal neighbours one more between them. True: such samples have loss and
  // gradient 0.
  bool zero_infinity = false;
  // kMean divides the loss of each sample by the number of its labels first (by 1 if there are
  // none), as PyTorch does; kBatchMean does not.
  LossReduction reduction = LossReduction::kMean;
};

// logits [n, time, c] f32 or f64, labels [n, most labels], logit_lengths [n] and label_lengths [n],
// each i32 or i64 -> -log of the probability that softmax(logits) gives a sample its labels, summed
// over all paths. A path has one class for each step of time; labels are what is left of it when
// repetitions are removed, and then blanks. Sample i has the first logit_lengths[i] steps of time
// and the first label_lengths[i] labels; what comes after them is not read, and its gradient is 0.
// Probabilities are added as logarithms, in f64. It has no second derivative, as in PyTorch.
//
// A run fails with InvalidArgument, naming the op, row and value, if a length is below 0 or exceeds
// its dimension, or if a label is the blank or not in [0, c).
Output ctc_loss(Output logits, Output labels, Output logit_lengths, Output label_lengths,
                CtcOptions options = {}, At at = {});

// The loss of each sample, [n].
extern const Op kCtcLoss;
// logits, labels, logit_lengths, label_lengths, dy [n] -> the gradient of logits.
extern const Op kCtcLossGrad;

}  // namespace belfry
