// Loss scaling over towers, and whether a step is applied: nodes of a training graph.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

struct TrainerOptions;

// The variables "loss_scale" and "loss_scale/good_steps" of a graph, on the first device; none
// unless the precision is f16. Throws InvalidArgument for a scale that is not a positive power of
// two that f32 holds, and for growth_steps below 1.
LossScale make_loss_scale(Graph& graph, const TrainerOptions& options);

// The names of these variables, which checkpoints of other precisions lack, and of one that
// earlier versions had.
std::vector<std::string> loss_scale_names();

// GradientOptions::initial for a loss: the scale, or `without_scale` if there is none.
std::vector<Output> initial_gradients(const LossScale& scale, Output loss, double without_scale);

// The name of an optimizer that does not heed the factor of gradients
// (Optimizer::Rule::takes_loss_scale); "" if all do.
std::string optimizer_without_factor(const TrainerOptions& options);

// Whether a step that is not finite updates nothing. Under kStop optimizers that cannot skip an
// update (Optimizer::takes_loss_scale()) have no such guard.
bool guards_steps(const TrainerOptions& options);

// What a step must have finite to update anything, in this process.
struct CheckedValues {
  std::vector<Output> gradients;
  std::vector<Output> losses;  // and moments of batch norms
  GradientRange range = {};
};

// Whether all values of a step, in all processes, are finite, with their sums, and what to multiply
// gradients by: 1 / `scale`, or 0. One node for all, on the scale's device.
Unscaling unscaling_of(Output scale, const CheckedValues& values);

}  // namespace belfry
