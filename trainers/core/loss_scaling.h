// Loss scaling over towers: nodes of a training graph.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

struct TrainerOptions;

// The variables "loss_scale", "loss_scale/good_steps" and "loss_scale/skipped_steps" of a graph, on
// the first device; none unless the precision is f16. Throws InvalidArgument for a scale that is
// not a positive power of two that f32 holds, and for growth_steps below 1.
LossScale make_loss_scale(Graph& graph, const TrainerOptions& options);

// The names of these variables, which checkpoints of other precisions lack.
std::vector<std::string> loss_scale_names();

// GradientOptions::initial for a loss: the scale, or `without_scale` if there is none.
std::vector<Output> initial_gradients(const LossScale& scale, Output loss, double without_scale);

// Whether gradients [tower][variable] of a scaled loss are finite, and what to multiply them by:
// one node for all, on the scale's device. All towers of all processes count. The gradients of up
// to `total` towers are summed, perhaps with weights. `counts(t)` says whether those of tower t
// count.
Unscaling unscaling_of(const LossScale& scale, std::span<const std::vector<Gradient>> rows,
                       double total, const std::function<bool(std::size_t)>& counts);

}  // namespace belfry
