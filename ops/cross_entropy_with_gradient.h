// A mean of SparseSoftmaxCrossEntropy with its gradient, and accuracy, in one launch that takes one
// row of logits at a time. Plans make these nodes on GPUs (passes/fuse.cc); the bits are those of
// the separate nodes.
#pragma once
#include "belfry/framework/graph/op.h"

namespace belfry {

class Surroundings;

// logits [n, c], labels [n], the gradient of the mean loss -> that of the logits, the loss [n], and
// perhaps top-1 accuracy. Replaces SparseSoftmaxCrossEntropy, BroadcastAlong,
// SparseSoftmaxCrossEntropyGrad and Accuracy. Logits and their gradient are alike; where they have
// 16 bits, the casts around these nodes are gone, too.
extern const Op kCrossEntropyWithGradient;

// Op::fuse of SparseSoftmaxCrossEntropy, its gradient, and Accuracy.
void fuse_loss(Surroundings& around);
void fuse_loss_gradient(Surroundings& around);
void fuse_accuracy(Surroundings& around);

}  // namespace belfry
