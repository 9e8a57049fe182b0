// Updates of which each process makes a part (AggregationOptions::zero_stage).
#pragma once
#include "belfry/trainers/core/trainer_options.h"
#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

// Whether each process updates a part of each variable: options ask for it, and there are several.
bool updates_parts(const TrainerOptions& options);

// Why updates cannot be made in parts with these options, as a sentence that follows the option; ""
// if they can, or if the options do not request it.
std::string partition_refusal(const TrainerOptions& options);

// The update of variables by the gradients of all towers of all processes. They are combined as
// strategy `collective` does, summed over the batches of a step and clipped as the options ask for,
// and applied part by part. Each process has slots, and sums over batches, only for its own parts
// (Variable::whole_shape()). It updates these parts in place, and sends their values to the others.
// All bits are those of updates of whole variables.
UpdateNodes update_parts(const TrainerOptions& options, const GradientTable& gradients,
                         const UpdateOptions& how);

}  // namespace belfry
