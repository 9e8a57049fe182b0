#include "belfry/trainers/program/program_callbacks.h"

#include "belfry/framework/base/text.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/callbacks/progress.h"
#include "belfry/trainers/program/memory_report.h"

namespace belfry {

SaveForFlag::SaveForFlag(const TrainFlags& flags)
    : SaveCheckpoint(flags.files.save_checkpoint, flags.files.overwrite),
      written_(cat("--save_checkpoint=", flags.files.save_checkpoint)) {
  wait_for_test();
}

void SaveForFlag::setup(Trainer& trainer) {
  naming_flag<FlagError>(written_, [&] { SaveCheckpoint::setup(trainer); });
}

void SaveForFlag::after_epoch(Trainer& trainer, const StepInfo& info) {
  naming_flag<Error>(written_, [&] { SaveCheckpoint::after_epoch(trainer, info); });
}

void SaveForFlag::after_training(Trainer& trainer, const StepInfo& info) {
  naming_flag<Error>(written_, [&] { SaveCheckpoint::after_training(trainer, info); });
}

void SaveForFlag::after_evaluation(Trainer& trainer, const StepInfo& info) {
  naming_flag<Error>(written_, [&] { SaveCheckpoint::after_evaluation(trainer, info); });
}

void SaveForFlag::on_error(Trainer& trainer, const std::exception& error) {
  naming_flag<Error>(written_, [&] { SaveCheckpoint::on_error(trainer, error); });
}

void SaveForFlag::require_saved() const {
  if (!failure().empty()) throw IoError(cat(written_, ": ", failure()));
}

std::shared_ptr<SaveForFlag> add_callbacks(TrainerOptions& options, const TrainFlags& flags,
                                           const Recipe& recipe, Console& console, TrainingRun& run,
                                           std::optional<double> peak) {
  options.callbacks = run.callbacks();
  std::shared_ptr<SaveForFlag> save;
  if (!flags.files.save_checkpoint.empty()) {
    save = naming_flag<FlagError>(cat("--save_checkpoint=", flags.files.save_checkpoint),
                                  [&] { return std::make_shared<SaveForFlag>(flags); });
    options.callbacks.push_back(save);
  }
  options.callbacks.push_back(std::make_shared<Progress>(console, peak));
  options.callbacks.push_back(std::make_shared<Evaluation>(
      console, [&run](Trainer& trainer) { run.stop().look(trainer); }));
  const char* const batch = flags.global_batch_size > 0 ? "--global_batch_size" : "--batch_size";
  options.callbacks.push_back(std::make_shared<TellMemory>(
      console, flags.saves(),
      MemoryLimit{.advice = cat("use a smaller ", batch, ", --recompute, or fewer --devices")}));
  if (flags.early_stop)
    options.callbacks.push_back(std::make_shared<EarlyStop>(*flags.early_stop, console));
  options.callbacks.insert(options.callbacks.end(), recipe.callbacks.begin(),
                           recipe.callbacks.end());
  return save;
}

std::string last_saved(const SaveCheckpoint* save, const TrainingRun& run) {
  return save && !save->saved().empty() ? save->saved() : run.saved();
}

}  // namespace belfry
