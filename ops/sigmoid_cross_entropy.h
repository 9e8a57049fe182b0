// SigmoidCrossEntropy: the loss for independent yes-or-no labels.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// logits and targets of one shape, f32 or f64 -> like them: -z log(p) - (1 - z) log(1 - p), where p
// is sigmoid(logit) and z the target, mostly in [0, 1]. Computed as max(x, 0) - x z +
// log(1 + e^-|x|), which neither overflows nor takes the logarithm of 0. Both have gradients.
extern const Op kSigmoidCrossEntropy;
Output sigmoid_cross_entropy(Output logits, Output targets, At at = {});

}  // namespace belfry
