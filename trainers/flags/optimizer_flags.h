// The flags of the optimizer: its rate, weight decay and averages, and the clipping before it.
#pragma once
#include <cstdint>
#include <optional>

#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/optimizers/optimizer.h"
#include "belfry/trainers/util/schedules.h"

namespace belfry {

// Changes to the optimizer of the recipe.
struct OptimizerFlags {
  std::optional<double> learning_rate;
  std::optional<double> weight_decay;
  std::optional<RateSchedule> lr_schedule;
  std::int64_t warmup_steps = 0;
  std::optional<double> moving_average;  // the decay
  bool moving_average_warmup = false;    // WeightAverages::counts_updates
};

// `clip_norm`: the value of --clip_norm, for TrainerOptions::clip_norm.
void add_optimizer_flags(FlagParser& parser, OptimizerFlags& flags, double& clip_norm);

// The optimizer with the changes of the flags. --learning_rate replaces its rate; --lr_schedule and
// --warmup_steps make the rate change. Throws FlagError for a schedule if the optimizer has one.
// Also throws it for a weight decay that the optimizer does not take.
Optimizer with_flags(const Optimizer& optimizer, const OptimizerFlags& flags);

}  // namespace belfry
