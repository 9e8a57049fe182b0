// Means, plain and weighted, over the batches of all devices.
#pragma once
#include "belfry/ops/losses/class_weights.h"
#include "belfry/towers/tower.h"

namespace belfry {

// sum(weights values) / sum(weights) over the batch of all towers, as a loss: a scalar for each
// tower, whose mean over towers, processes and shards is that quotient. Values and weights have one
// shape [n, ...] and type, f32 or f64; 16 bits are cast to f32. NaN if all weights are 0, as in
// PyTorch. Weights are constants to gradients. All towers must call it.
//
// An evaluation divides the sums over all its samples (TowerRecord::evaluated), also where a loss
// or metric adds such means up or multiplies them by constants. A tower that does not train gives
// the quotient of its own batch. Gradient accumulation averages the quotients of its batches, as a
// loop of loss.backward() does in PyTorch; that is the quotient of all of them only if their
// weights have one sum.
Output weighted_mean(Tower& tower, Output values, Output weights, At at = {});

// The mean over the samples, dimension 0, of the batches of all towers: x [n, ...] -> [...], the
// same in all towers, as for a loss that balances experts. It has a gradient. 16 bits are cast to
// f32. All towers must call it. A tower that does not train gives the mean over its own batch.
Output batch_mean(Tower& tower, Output x, At at = {});

// The mean of weighted_cross_entropy() by weighted_mean(), as PyTorch's cross_entropy has it: rows
// that are ignored do not count, and the others as much as their class's weight.
Output cross_entropy(Tower& tower, Output logits, Output labels,
                     WeightedCrossEntropyOptions options, At at = {});

}  // namespace belfry
