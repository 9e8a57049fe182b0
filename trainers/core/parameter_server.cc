#include "belfry/allreduce/bucketed.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace {

Node& update(const TrainerOptions& options, const GradientTable& gradients,
             const UpdateForm& form) {
  std::unique_ptr<Strategy> strategy = make_strategy("colocate");
  if (options.bucket_mb > 0) strategy = bucketed(std::move(strategy), options.bucket_mb);
  return apply_gradients(options.optimizer, strategy->reduce(gradients, {.weights = form.weights}),
                         {}, form.slots, form.unscaling);
}

}  // namespace

SyncMultiGpuTrainerParameterServer::SyncMultiGpuTrainerParameterServer(TrainerOptions options,
                                                                       const Dataset& train,
                                                                       const Dataset* test)
    : Trainer(std::move(options), train, test,
              {.variables = VariablePolicy::kSpread,
               .update = update,
               .weighs = true,
               .unscales = true}) {}

namespace {

const TrainerRegistration kParameterServer({
    .name = "parameter_server",
    .summary = "one copy of each variable, spread over the devices",
    .default_strategy = "colocate",
    .accepts = [](std::string_view spec) { return spec == "colocate"; },
    .spreads = true,
    .buckets = true,
    .weighs = true,
    .canonical = true,
    .make = make_trainer<SyncMultiGpuTrainerParameterServer>,
});

}  // namespace
}  // namespace belfry
