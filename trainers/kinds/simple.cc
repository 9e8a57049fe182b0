#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/optimizers/clipping.h"

namespace belfry {
namespace {

Node& update_alone(const TrainerOptions& options, const GradientTable& gradients,
                   const UpdateForm& form) {
  return apply_gradients(options.optimizer, gradients, {}, form.slots,
                         clipped(gradients, options.clip_norm, form.unscaling));
}

const TrainerRegistration kSimple({
    .name = "simple",
    .summary = "one tower",
    .takes_one_device = true,
    .update = update_alone,
    .takes_unequal_batches = true,
    .takes_loss_scale = true,
    .takes_clip_norm = true,
    .canonical = true,
});

}  // namespace
}  // namespace belfry
