#include "belfry/trainers/program/trainer_options.h"

#include <memory>
#include <optional>

#include "belfry/allreduce/machine.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// Found once, for all modes that choose.
std::function<MachineDescription()> machine_of(const TrainFlags& flags) {
  const TrainerOptions& trainer = flags.trainer;
  return [found = std::make_shared<std::optional<MachineDescription>>(), given = flags.automatic,
          here = measured_devices(trainer)] {
    if (!*found) *found = machine_for(given, here);
    return **found;
  };
}

LearningRate rate_of(const TrainFlags& flags, const Optimizer& optimizer) {
  const LearningRate rate = flags.optimizer.learning_rate
                                ? LearningRate(*flags.optimizer.learning_rate)
                                : optimizer.rate();
  if (!flags.optimizer.lr_schedule) return warm_up(rate, flags.optimizer.warmup_steps);
  require<FlagError>(rate.is_constant(), "--lr_schedule=", *flags.optimizer.lr_schedule,
                     " starts from a constant rate, and the program's is a schedule of its own (",
                     rate, "); say --learning_rate=X, too, to replace that");
  return scheduled(rate.at({}), *flags.optimizer.lr_schedule, flags.optimizer.warmup_steps);
}

}  // namespace

TrainerOptions trainer_options(const TrainFlags& flags, const Model& model,
                               const Optimizer& optimizer) {
  TrainerOptions options = flags.trainer;
  options.model = model;
  options.optimizer = optimizer.with_rate(rate_of(flags, optimizer));
  if (const std::optional<double> decay = flags.optimizer.weight_decay)
    options.optimizer = as_flag(cat("--weight_decay=", *decay),
                                [&] { return options.optimizer.with_weight_decay(*decay); });
  if (flags.optimizer.moving_average)
    options.optimizer = options.optimizer.with_averages({.decay = *flags.optimizer.moving_average});
  options.keeps_gradients = flags.run.hash_every > 0;
  AutoOptions& choice = options.aggregation.choice;
  choice.machine = machine_of(flags);
  if (!flags.automatic.links.empty()) choice.machine();  // wrong files are refused first
  return options;
}

}  // namespace belfry
