#include "belfry/trainers/core/accumulation.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace {

Node& update_alone(const TrainerOptions& options, const GradientTable& gradients,
                   const UpdateForm& form) {
  return apply_combined(options, gradients, form);
}

const TrainerRegistration kSimple({
    .name = "simple",
    .summary = "one tower",
    .takes_one_device = true,
    .update = update_alone,
    .takes_unequal_batches = true,
    .takes_loss_scale = true,
    .takes_clip_norm = true,
    .takes_accumulation = true,
    .canonical = true,
});

}  // namespace
}  // namespace belfry
