#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {

SimpleTrainer::SimpleTrainer(TrainerOptions options, const Dataset& train, const Dataset* test)
    : Trainer(std::move(options), train, test,
              {.variables = VariablePolicy::kOnOneDevice,
               .update = [](const TrainerOptions& wanted, const GradientTable& gradients,
                            const UpdateForm& form) -> Node& {
                 require(gradients.towers() == 1, "SimpleTrainer takes one device, not ",
                         gradients.towers());
                 return apply_gradients(wanted.optimizer, gradients, {}, form.slots,
                                        form.unscaling);
               },
               .weighs = true,
               .unscales = true}) {}

namespace {

const TrainerRegistration kSimple({.name = "simple",
                                   .summary = "one tower",
                                   .one_device = true,
                                   .weighs = true,
                                   .canonical = true,
                                   .make = make_trainer<SimpleTrainer>});

}  // namespace
}  // namespace belfry
