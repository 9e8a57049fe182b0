// The flags of the optimizer: its rate, weight decay and averages.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "belfry/trainers/optimizers/optimizer.h"
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/util/schedules.h"

namespace belfry {

// Changes to the optimizer of the recipe.
struct OptimizerFlags {
  std::optional<double> learning_rate;
  std::optional<double> weight_decay;
  std::optional<RateSchedule> lr_schedule;
  std::int64_t warmup_steps = 0;
  std::vector<VariableGroup> groups;     // before those of the program
  std::optional<double> moving_average;  // the decay
  bool moving_average_warmup = false;    // WeightAverages::counts_updates
};

Options<OptimizerFlags> optimizer_options();

// The optimizer with the changes of the flags. --learning_rate replaces its rate; --lr_schedule and
// --warmup_steps make the rate change. Throws FlagError for a schedule if the optimizer has one.
// Also throws it for a weight decay that the optimizer does not take, as groups may have one.
Optimizer with_flags(const Optimizer& optimizer, const OptimizerFlags& flags);

}  // namespace belfry
