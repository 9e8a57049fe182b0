// Updates by combined gradients, of one batch or of several.
#pragma once
#include "belfry/trainers/core/trainer.h"

namespace belfry {

// Collection of the variables that hold sums of gradients between the batches of a step. They are
// neither saved nor hashed: between steps they mean nothing.
inline constexpr std::string_view kGradientSums = "gradient_sums";

// The update of variables by what a trainer has combined: clipped, as the options ask for. If
// form.accumulation asks for it, the update is by the mean over the batches of a step,
// ((g1 + g2) + g3) * (1 / 3) for three, and is to be run with the last. The sums, one beside each
// variable and of its shape, are made here; replicas of a variable have replicas of its sum.
Node& apply_combined(const TrainerOptions& options, const GradientTable& combined,
                     const UpdateForm& form);

}  // namespace belfry
