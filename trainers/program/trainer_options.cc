#include "belfry/trainers/program/trainer_options.h"

#include <memory>
#include <optional>

#include "belfry/allreduce/machine.h"

namespace belfry {
namespace {

// Found once, for all modes that choose.
std::function<Machine()> machine_of(const TrainFlags& flags) {
  const TrainerOptions& trainer = flags.trainer;
  return [found = std::make_shared<std::optional<Machine>>(), given = flags.automatic,
          here = measured_devices(trainer)] {
    if (!*found) *found = machine_for(given, here);
    return **found;
  };
}

}  // namespace

TrainerOptions trainer_options(const TrainFlags& flags, const Model& model,
                               const Optimizer& optimizer) {
  TrainerOptions options = flags.trainer;
  options.model = model;
  options.optimizer = flags.learning_rate ? optimizer.with_rate(*flags.learning_rate) : optimizer;
  AutoOptions& choice = options.aggregation.choice;
  choice.machine = machine_of(flags);
  if (!flags.automatic.links.empty()) choice.machine();  // wrong files are refused first
  return options;
}

}  // namespace belfry
