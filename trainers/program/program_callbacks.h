// The callbacks of a training program.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "belfry/trainers/callbacks/save_checkpoint.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/program/train.h"
#include "belfry/trainers/program/training_run.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

// Serves --save_checkpoint. Its errors name the flag.
class SaveForFlag final : public SaveCheckpoint {
 public:
  explicit SaveForFlag(const TrainFlags& flags);
  void setup(Trainer& trainer) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;
  void after_training(Trainer& trainer, const StepInfo& info) override;
  void after_evaluation(Trainer& trainer, const StepInfo& info) override;
  void on_error(Trainer& trainer, const std::exception& error) override;

  // Throws IoError if the last save is not where the flag says.
  void require_saved() const;

 private:
  std::string written_;
};

// Adds all callbacks to `options`, in the order that callbacks.h states. Returns the callback of
// --save_checkpoint, or null if the flag is not given. `peak`: the measured peak of the devices,
// for Progress.
std::shared_ptr<SaveForFlag> add_callbacks(TrainerOptions& options, const TrainFlags& flags,
                                           const Recipe& recipe, Console& console, TrainingRun& run,
                                           std::optional<double> peak);

// Tells people what was saved last, by `save` (--save_checkpoint; null: none) or else into the run
// directory. "" if nothing was saved.
std::string last_saved(const SaveCheckpoint* save, const TrainingRun& run);

}  // namespace belfry
