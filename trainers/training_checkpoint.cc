#include "belfry/trainers/training_checkpoint.h"

#include "belfry/framework/checkpoint.h"
#include "belfry/trainers/trainer.h"

namespace belfry {

void save_training(Trainer& trainer, const std::string& path) {
  const TrainingPosition position = trainer.position();
  save_checkpoint(trainer.session(), path,
                  Json::object()
                      .set("steps", position.steps)
                      .set("epoch", position.epoch)
                      .set("samples", position.samples)
                      .set("seed", position.seed));
}

namespace {

// Throws IoError naming the manifest unless it holds what save_training() writes.
TrainingPosition position_in(const CheckpointInfo& info) {
  if (!info.extra.find("steps")) return {};
  try {
    return {.steps = info.extra.at("steps").integer(),
            .epoch = info.extra.at("epoch").integer(),
            .samples = info.extra.at("samples").integer(),
            .seed = info.extra.at("seed").unsigned_integer()};
  } catch (const InvalidArgument& error) {
    throw IoError(cat(info.path, "/manifest.json: the position of training: ", error.what()));
  }
}

}  // namespace

std::string restore_training(Trainer& trainer, const std::string& path) {
  // First, as it may refuse the position; a failed restore changes nothing.
  trainer.resume(position_in(inspect_checkpoint(path)));
  const CheckpointInfo info = restore_checkpoint(trainer.session(), path);
  const std::int64_t left = trainer.total_steps() - trainer.steps();
  return cat("checkpoint: ", info.path, ", after step ", trainer.steps(), "; ",
             left > 0 ? cat(left, " steps are left") : "nothing is left to train");
}

SaveCheckpoint::SaveCheckpoint(std::string path) : path_(std::move(path)) {
  check_checkpoint_path(path_);
}

void SaveCheckpoint::after_epoch(Trainer& trainer, const StepInfo& info) { save(trainer, info); }

void SaveCheckpoint::after_training(Trainer& trainer, const StepInfo& info) {
  if (info.step != saved_at_) save(trainer, info);
}

void SaveCheckpoint::save(Trainer& trainer, const StepInfo& info) {
  save_training(trainer, path_);
  saved_at_ = info.step;
}

}  // namespace belfry
