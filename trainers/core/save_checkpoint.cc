#include "belfry/trainers/core/save_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

// Of all runs; 0 if the checkpoint does not say.
std::int64_t steps_in(const CheckpointInfo& info) try {
  return position_in(info).steps;
} catch (const IoError&) {
  return 0;
}

// The number of steps after which the run saves first.
std::int64_t first_save(const Trainer& trainer) {
  const BatchPlan& plan = trainer.batches();
  const std::int64_t done = trainer.position().samples / plan.samples_per_step();
  return std::min(trainer.steps() + plan.steps_per_epoch() - done, trainer.total_steps());
}

void warn_of_replacing(const Trainer& trainer, const std::string& path) {
  const std::optional<CheckpointInfo> old = find_training(path);
  if (!old || steps_in(*old) <= trainer.steps()) return;
  log_warning("this run begins at step ", trainer.steps(), ", and replaces step ", steps_in(*old),
              " of ", old->path, " by step ", first_save(trainer),
              "; to go on from that checkpoint, restore it");
}

}  // namespace

SaveCheckpoint::SaveCheckpoint(std::string path, bool overwrite)
    : path_(std::move(path)), overwrite_(overwrite) {
  check_checkpoint_path(path_);
}

void SaveCheckpoint::setup(Trainer& trainer) {
  check_checkpoint_path(trainer.graph(), path_, training_save_options(overwrite_));
  warn_of_replacing(trainer, path_);
}

void SaveCheckpoint::after_epoch(Trainer& trainer, const StepInfo& info) { save(trainer, info); }

void SaveCheckpoint::after_training(Trainer& trainer, const StepInfo& info) {
  if (info.step != saved_at_) save(trainer, info);
}

void SaveCheckpoint::save(Trainer& trainer, const StepInfo& info) {
  replaced_ = waits_ && trainer.test_data() ? find_training(path_) : std::nullopt;
  if (replaced_ && !has_good_losses(*replaced_)) replaced_.reset();
  try {
    manifest_ =
        save_training(trainer, path_, {.overwrite = overwrite_, .keep_old = replaced_.has_value()});
    failure_.clear();
    saved_path_ = path_;
  } catch (const IoError& error) {
    save_beside(trainer, error.what());
  }
  is_tested_ = false;
  saved_at_ = info.step;
  epochs_ = trainer.epochs();
}

void SaveCheckpoint::save_beside(Trainer& trainer, const std::string& why) {
  replaced_.reset();
  try {
    save_training(trainer, beside(), {.overwrite = overwrite_});
  } catch (const Error&) {
    throw IoError(why);
  }
  saved_path_ = beside();
  const bool is_new = failure_.empty();
  failure_ = cat(why, "; step ", trainer.steps(), " was saved at ", beside());
  if (is_new) log_warning(failure_, ", and training goes on");
}

void SaveCheckpoint::after_evaluation(Trainer& trainer, const StepInfo&) {
  if (!waits_ || std::exchange(is_tested_, true)) return;
  const bool good = std::isfinite(trainer.metric("validation_loss"));
  if (!good && replaced_) return put_back(trainer);
  if (!good) {  // noted, so that it may be replaced
    save_training(trainer, saved_path_, {.overwrite = overwrite_, .test_diverged = true});
    return;
  }
  try {
    if (replaced_) settle_checkpoint(path_, manifest_, /*keep_new=*/true);
  } catch (const IoError& error) {
    log_warning("the checkpoint ", path_,
                " is saved, but the one before stays behind: ", error.what());
  }
}

void SaveCheckpoint::put_back(Trainer& trainer) {
  if (!settle_checkpoint(path_, manifest_, /*keep_new=*/false)) return;
  save_training(trainer, beside(), {.overwrite = overwrite_, .test_diverged = true});
  saved_path_ = beside();
  log_warning("the test loss is ", significant(trainer.metric("validation_loss")), " after step ",
              saved_at_, ", so the checkpoint ", path_, " of step ", steps_in(*replaced_),
              " was kept; the present values are saved at ", beside());
}

std::string SaveCheckpoint::saved() const {
  if (saved_at_ < 0) return "";
  const std::optional<CheckpointInfo> now = find_training(saved_path_);
  if (!now) return cat("step ", saved_at_, " was saved at ", saved_path_, ", but is there no more");
  if (steps_in(*now) != saved_at_)
    return cat("step ", saved_at_, " was saved at ", saved_path_, ", but now ", now->path,
               " holds step ", steps_in(*now));
  return cat("the checkpoint ", now->path, " holds step ", saved_at_, ", ", epochs_,
             epochs_ == 1 ? " whole epoch" : " whole epochs");
}

}  // namespace belfry
