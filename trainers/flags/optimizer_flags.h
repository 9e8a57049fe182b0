// The flags of the optimizer: its rate, weight decay and averages.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "belfry/trainers/optimizers/optimizer.h"
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/util/schedules.h"

namespace belfry {

// Changes to the optimizer of the recipe.
struct OptimizerFlags {
  std::string optimizer;  // of optimizer_names(), or "": the recipe's
  // Options of some optimizers (Optimizer::options()).
  std::optional<double> momentum, nesterov, alpha, beta1, beta2, epsilon, trust_coefficient;
  std::optional<double> learning_rate;
  std::optional<double> weight_decay;
  std::optional<DecayForm> weight_decay_form;
  std::optional<RateSchedule> lr_schedule;
  std::int64_t warmup_steps = 0;
  std::vector<VariableGroup> groups;     // before those of the program
  std::optional<double> moving_average;  // the decay
  bool moving_average_warmup = false;    // WeightAverages::counts_updates
};

Options<OptimizerFlags> optimizer_options();

// The optimizer that the flags name, with its usual rate and options, or else `optimizer`; with the
// options, weight decay and groups of the flags, which leave the rate alone. One that the flags
// name, and that `optimizer` is, is that one. Throws FlagError, naming the flag, for options, forms
// of weight decay and groups that it does not take.
Optimizer chosen_optimizer(const Optimizer& optimizer, const OptimizerFlags& flags);

// chosen_optimizer() with all changes of the flags. --learning_rate replaces its rate;
// --lr_schedule and --warmup_steps make the rate change. Throws FlagError as that does, and for a
// schedule if the optimizer has one.
Optimizer with_flags(const Optimizer& optimizer, const OptimizerFlags& flags);

}  // namespace belfry
