// Weighted means over the batches of all devices.
#pragma once
#include "belfry/ops/losses/class_weights.h"
#include "belfry/towers/tower.h"

namespace belfry {

// sum(weights values) / sum(weights) over the batch of all towers, as a loss: a scalar for each
// tower, whose mean over towers, processes and shards is that quotient. Values and weights have one
// shape [n, ...] and type, f32 or f64; 16 bits are cast to f32. NaN if all weights are 0. Weights
// are constants to gradients. All towers must call it. Gradient accumulation averages the quotients
// of its batches.
//
// A tower that does not train gives the mean of weights values over its elements instead, and
// divides by no weights. So what an evaluation reports does not depend on how its samples are
// divided; weights whose mean over the data is 1 make it comparable with the loss in training.
Output weighted_mean(Tower& tower, Output values, Output weights, At at = {});

// The mean of weighted_cross_entropy() by weighted_mean(), as PyTorch's cross_entropy has it for
// one batch: rows that are ignored do not count, and the others as much as their class's weight.
Output cross_entropy(Tower& tower, Output logits, Output labels,
                     WeightedCrossEntropyOptions options, At at = {});

}  // namespace belfry
