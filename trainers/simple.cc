#include "belfry/trainers/trainer_kinds.h"

namespace belfry {

SimpleTrainer::SimpleTrainer(TrainerOptions options, const Dataset& train, const Dataset* test)
    : Trainer(std::move(options), train, test,
              {VariablePolicy::kOnOneDevice,
               [](const TrainerOptions& wanted, const GradientTable& gradients) -> Node& {
                 require(gradients.towers() == 1, "SimpleTrainer takes one device, not ",
                         gradients.towers());
                 return apply_gradients(wanted.optimizer, gradients);
               }}) {}

namespace {

const TrainerRegistration kSimple({.name = "simple",
                                   .summary = "one tower",
                                   .one_device = true,
                                   .make = make_trainer<SimpleTrainer>});

}  // namespace
}  // namespace belfry
