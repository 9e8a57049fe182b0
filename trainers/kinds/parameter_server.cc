#include "belfry/allreduce/bucketed.h"
#include "belfry/trainers/core/accumulation.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace {

Node& update_spread(const TrainerOptions& options, const GradientTable& gradients,
                    const UpdateForm& form) {
  std::unique_ptr<Strategy> strategy = make_strategy("colocate");
  if (options.aggregation.bucket_mb > 0)
    strategy = bucketed(std::move(strategy), options.aggregation.bucket_mb);
  const GradientTable combined = strategy->reduce(gradients, {form.reduction, form.weights});
  return apply_combined(options, combined, form);
}

const TrainerRegistration kParameterServer({
    .name = "parameter_server",
    .summary = "one copy of each variable, spread over the devices",
    .variables = VariablePolicy::kSpread,
    .default_strategy = "colocate",
    .accepts = [](std::string_view spec) { return spec == "colocate"; },
    .update = update_spread,
    .makes_buckets = true,
    .takes_unequal_batches = true,
    .takes_sums = true,
    .takes_loss_scale = true,
    .takes_clip_norm = true,
    .takes_accumulation = true,
    .canonical = true,
});

}  // namespace
}  // namespace belfry
