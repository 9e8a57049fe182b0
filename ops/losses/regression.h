// Losses of predicted numbers. Predictions and targets have one shape and type: they are not
// broadcast. Those of 16 bits are cast to f32, and the loss is f32.
#pragma once
#include "belfry/ops/losses/loss_reduction.h"

namespace belfry {

struct PlainLossOptions {
  LossReduction reduction = LossReduction::kMean;
};

// (p - t)^2.
Output mse_loss(Output predictions, Output targets, PlainLossOptions options = {}, At at = {});
// |p - t|.
Output l1_loss(Output predictions, Output targets, PlainLossOptions options = {}, At at = {});

struct HuberOptions {
  double delta = 1;  // positive
  LossReduction reduction = LossReduction::kMean;
};
// d^2 / 2 for differences d of up to delta, and delta (|d| - delta / 2) beyond.
Output huber_loss(Output predictions, Output targets, HuberOptions options = {}, At at = {});

struct SmoothL1Options {
  double beta = 1;  // 0 gives l1_loss
  LossReduction reduction = LossReduction::kMean;
};
// The Huber loss over beta: d^2 / (2 beta) for differences d of up to beta, and |d| - beta / 2
// beyond.
Output smooth_l1_loss(Output predictions, Output targets, SmoothL1Options options = {}, At at = {});

}  // namespace belfry
