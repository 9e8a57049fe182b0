#include "belfry/allreduce/strategy.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace {

GradientTable combine_at_variables(const TrainerOptions& options, const GradientTable& gradients,
                                   ReduceOptions how) {
  how.packing.bucket_mb = options.aggregation.bucket_mb;
  return make_strategy("colocate")->reduce(gradients, how);
}

const TrainerRegistration kParameterServer({
    .name = "parameter_server",
    .summary = "one copy of each variable, spread over the devices",
    .variables = VariablePolicy::kSpread,
    .default_strategy = "colocate",
    .accepts = [](std::string_view spec) { return spec == "colocate"; },
    .combine = combine_at_variables,
    .makes_buckets = true,
    .canonical = true,
});

}  // namespace
}  // namespace belfry
