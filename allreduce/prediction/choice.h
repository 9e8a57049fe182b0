// How `auto` chooses: it predicts the time of each strategy for given tensors on a given machine.
#pragma once
#include <string>
#include <vector>

#include "belfry/allreduce/prediction/cost_model.h"
#include "belfry/allreduce/prediction/machine.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/graph/kernel.h"

namespace belfry {

// Seconds a strategy takes to combine gradients of these types, one set per device, and to write
// the results: assign(g[t], sum[t]). So a sum that is fused with the writes of a step has the price
// of the fused launch. The devices need not exist. Throws what the strategy and the planner throw,
// and NotFoundError for devices that the machine lacks.
double predict_reduction(const Strategy& strategy, const std::vector<TensorType>& gradients,
                         const std::vector<DeviceSpec>& devices, const MachineDescription& machine,
                         const ReduceOptions& how = {},
                         PlanExtent extent = PlanExtent::kPartOfStep);

struct Prediction {
  std::string strategy;
  double bucket_mb = 0;    // of Packing
  bool canonical = false;  // for this number of devices
  double seconds = 0;
  std::string refusal;  // why it cannot be used; `seconds` is then unset
};

struct StrategyChoice {
  std::vector<Prediction> predictions;  // fastest first, then the refused ones
  const Prediction& best() const { return predictions.front(); }
  // The predictions and the reason, for people: lines.
  std::string str() const;
};

struct ChoiceOptions {
  // Whether to include strategies that are not canonical. The fastest may then give other bits than
  // canonical ones.
  bool any = false;
  Reduction reduction = Reduction::kMean;
  PlanExtent extent = PlanExtent::kPartOfStep;
  // Sizes in MiB to try with each strategy, at least one; 0: no buckets. A strategy without a node
  // for a whole bucket builds the same for all sizes, so only the first size above 0 is tried.
  std::vector<double> buckets = {0};
  // How gradients are packed; `buckets` replaces its size of buckets.
  Packing packing = {};
};

// Predicts, with each bucket size, those of `strategies` that are canonical for these devices, or
// all of them (ChoiceOptions::any). Buckets are predicted as if all gradients were ready. On a tie
// the first wins. Throws InvalidArgument with all refusals if none can be used.
StrategyChoice choose_strategy(const std::vector<std::string>& strategies,
                               const std::vector<TensorType>& gradients,
                               const std::vector<DeviceSpec>& devices,
                               const MachineDescription& machine, ChoiceOptions options = {});

}  // namespace belfry
