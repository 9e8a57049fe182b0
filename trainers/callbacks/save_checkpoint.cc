#include "belfry/trainers/callbacks/save_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

// The steps of all runs; 0 if the checkpoint does not say.
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

void SaveCheckpoint::before_step(Trainer& trainer, const StepInfo&) {
  if (trainer.ends_epoch()) trainer.compare_processes_soon();
}

void SaveCheckpoint::after_epoch(Trainer& trainer, const StepInfo& info) { save(trainer, info); }

void SaveCheckpoint::after_training(Trainer& trainer, const StepInfo& info) {
  settle();
  if (info.step != saved_.steps) save(trainer, info);
  settle();
}

void SaveCheckpoint::on_error(Trainer&, const std::exception&) { settle(); }

void SaveCheckpoint::save(Trainer& trainer, const StepInfo& info) {
  settle();
  require_no_divergence(trainer, path_);
  replaced_ = waits_ && trainer.test_data() ? find_training(path_) : std::nullopt;
  if (replaced_ && !has_good_losses(*replaced_)) replaced_.reset();
  begun_ = {.steps = info.step, .epochs = trainer.epochs(), .manifest = "", .why = ""};
  saving_.begin(trainer, JsonValue::object(),
                [this, keep_old = replaced_.has_value()](const CheckpointSnapshot& snapshot) {
                  write(snapshot, keep_old);
                });
  is_tested_ = false;
}

void SaveCheckpoint::write(const CheckpointSnapshot& snapshot, bool keep_old) {
  SaveOptions options = training_save_options(overwrite_);
  options.keep_old = keep_old;
  try {
    begun_.manifest = snapshot.save(path_, local_file_system(), options);
  } catch (const IoError& error) {
    begun_.why = error.what();
  }
  if (begun_.why.empty()) return;
  try {
    snapshot.save(beside(), local_file_system(), training_save_options(overwrite_));
  } catch (const Error&) {
    throw IoError(begun_.why);
  }
}

void SaveCheckpoint::settle() {
  if (!saving_.settle()) return;
  saved_ = begun_;
  const bool is_new = failure_.empty();
  failure_.clear();
  saved_path_ = path_;
  if (saved_.why.empty()) return;
  saved_path_ = beside();
  replaced_.reset();
  failure_ = cat(saved_.why, "; step ", saved_.steps, " was saved at ", saved_path_);
  if (is_new) log_warning(failure_, ", and training goes on");
}

void SaveCheckpoint::after_evaluation(Trainer& trainer, const StepInfo&) {
  settle();
  if (!waits_ || std::exchange(is_tested_, true)) return;
  const bool good = std::isfinite(trainer.metric("validation_loss"));
  if (!good && replaced_) return put_back(trainer);
  if (!good) {  // noted, so that another save may replace it
    save_training(trainer, saved_path_, overwrite_, note_of_test_loss(trainer));
    return;
  }
  try {
    if (replaced_) settle_checkpoint(path_, saved_.manifest, /*keep_new=*/true);
  } catch (const IoError& error) {
    log_warning("the checkpoint ", path_,
                " is saved, but the one before stays behind: ", error.what());
  }
}

void SaveCheckpoint::put_back(Trainer& trainer) {
  if (!settle_checkpoint(path_, saved_.manifest, /*keep_new=*/false)) return;
  save_training(trainer, beside(), overwrite_, note_of_test_loss(trainer));
  saved_path_ = beside();
  log_warning("the test loss is ", significant(trainer.metric("validation_loss")), " after step ",
              saved_.steps, ", so the checkpoint ", path_, " of step ", steps_in(*replaced_),
              " was kept; the present values are saved at ", beside());
}

std::string SaveCheckpoint::saved() const {
  if (saved_.steps < 0) return "";
  const std::optional<CheckpointInfo> now = find_training(saved_path_);
  if (!now)
    return cat("step ", saved_.steps, " was saved at ", saved_path_, " and has been removed since");
  if (steps_in(*now) != saved_.steps)
    return cat("the checkpoint ", now->path, " holds step ", steps_in(*now),
               ", which another save put in place of step ", saved_.steps, " of this run");
  return cat("the checkpoint ", now->path, " holds step ", saved_.steps, ", ", saved_.epochs,
             saved_.epochs == 1 ? " whole epoch" : " whole epochs");
}

}  // namespace belfry
