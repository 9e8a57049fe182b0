#include "belfry/allreduce/strategy.h"
#include "belfry/trainers/trainer_kinds.h"

namespace belfry {

SyncMultiGpuTrainerParameterServer::SyncMultiGpuTrainerParameterServer(TrainerOptions options,
                                                                       const Dataset& train,
                                                                       const Dataset* test)
    : Trainer(std::move(options), train, test,
              {VariablePolicy::kSpread,
               [](const TrainerOptions& wanted, const GradientTable& gradients) -> Node& {
                 return apply_gradients(wanted.optimizer,
                                        make_strategy("colocate")->reduce(gradients));
               }}) {}

namespace {

const TrainerRegistration kParameterServer({
    .name = "parameter_server",
    .summary = "one copy of each variable, spread over the devices",
    .default_strategy = "colocate",
    .accepts = [](std::string_view spec) { return spec == "colocate"; },
    .make = make_trainer<SyncMultiGpuTrainerParameterServer>,
});

}  // namespace
}  // namespace belfry
