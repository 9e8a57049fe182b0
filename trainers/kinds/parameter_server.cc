#include "belfry/allreduce/bucketed.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace {

GradientTable combine_at_variables(const TrainerOptions& options, const GradientTable& gradients,
                                   const ReduceOptions& how) {
  std::unique_ptr<Strategy> strategy = make_strategy("colocate");
  if (options.aggregation.bucket_mb > 0)
    strategy = bucketed(std::move(strategy), options.aggregation.bucket_mb);
  return strategy->reduce(gradients, how);
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
