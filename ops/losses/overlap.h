// How far two tensors agree: as masks, and in direction.
#pragma once
#include "belfry/ops/losses/loss_reduction.h"

namespace belfry {

struct DiceOptions {
  // Added to both sides of the ratio, so that two empty masks agree.
  double smooth = 1;
  // One ratio for each element of the last axis, as of classes or channels, instead of one for the
  // whole sample.
  bool per_channel = false;
  LossReduction reduction = LossReduction::kMean;
};
// predictions and targets [n, ...], both from 0 to 1 (take sigmoid or softmax of logits first):
// 1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth) for each sample -> [n] or [n, c], reduced.
// The ratio of a whole batch would depend on how devices divide the batch.
Output dice_loss(Output predictions, Output targets, DiceOptions options = {}, At at = {});

struct CosineOptions {
  int axis = -1;          // of vectors; it is dropped
  double epsilon = 1e-8;  // norms are at least so large
};
// sum(a b) / (|a| |b|) along an axis.
Output cosine_similarity(Output a, Output b, CosineOptions options = {}, At at = {});

}  // namespace belfry
