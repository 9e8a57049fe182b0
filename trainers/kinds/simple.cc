#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace {

const TrainerRegistration kSimple({
    .name = "simple",
    .summary = "one tower",
    .takes_one_device = true,
    .combine = [](const TrainerOptions&, const GradientTable& gradients,
                  const ReduceOptions&) { return gradients; },
    .canonical = true,
});

}  // namespace
}  // namespace belfry
