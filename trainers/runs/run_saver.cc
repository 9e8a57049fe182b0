#include "belfry/trainers/runs/run_saver.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/util/clock.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {

namespace {

constexpr char kLinePositions[] = "line_positions";

// Some file systems have no links. Checkpoints are found without them.
void point(RunDirectory& directory, const char* link, std::int64_t steps) try {
  directory.point(link, steps);
} catch (const IoError& error) {
  if (first_time_logged(cat("no link: ", directory.path()))) log_warning("no link: ", error.what());
}

}  // namespace

void SaveOutcomes::fail(std::int64_t step, const Error& error, std::optional<std::int64_t> kept) {
  failure_ = cat("step ", step, " could not be saved: ", error.what());
  if (on_error_ == OnSaveError::kStop) throw IoError(failure_);
  if (failed_in_a_row_++ > 0) return;
  log_warning(failure_, kept ? cat("; step ", *kept, " is kept") : "",
              ", and training continues; further failures are not reported until a save succeeds");
}

void SaveOutcomes::succeed(std::int64_t step) {
  failure_.clear();
  saved_ = step;
  if (const int failed = std::exchange(failed_in_a_row_, 0); failed > 0)
    log_warning("step ", step, " is saved, after ", failed,
                failed == 1 ? " save that failed" : " saves that failed");
}

std::string BestMetric::str() const { return cat(name, largest ? ":max" : ":min"); }

// Whether the best checkpoint exists in this directory. It does not if, for example, the run
// resumed from another run's checkpoint.
bool RunSaver::has_best() const {
  return best_ && std::ranges::count(directory_.checkpoints(), best_->step) > 0;
}

void RunSaver::check(Trainer& trainer) const {
  const std::string& best = schedule_.best.name;
  if (best.empty()) return;
  const std::vector<std::string> names = trainer.record().expected_metrics();
  const auto exists = [&](std::string_view name) { return std::ranges::count(names, name) > 0; };
  if (const std::string tested = cat("validation_", best); !exists(best))
    refuse_option<OptionMistake>(
        "best_metric", "=", best, ": there is no such metric",
        exists(tested) ? cat(" of evaluations; write ", tested) : did_you_mean(best, names),
        " (there are ", join(names), ")");
  if (has_best() && best_->by != schedule_.best)
    refuse_option<OptionMistake>("best_metric", "=", schedule_.best.str(),
                                 ": the best checkpoint in ", directory_.path(), ", of step ",
                                 best_->step, ", is the best by ", best_->by.str(),
                                 "; leave the option out to keep to that, or resume into another "
                                 "directory (",
                                 the_option("run_dir"), ")");
}

void RunSaver::setup(Trainer& trainer) {
  trainer.record().fingerprint();  // reads the data, so that no step waits for that
  begun_time_ = seconds_now();
  if (!has_best()) best_.reset();
  const std::vector<std::int64_t> there = directory_.checkpoints();
  // The run may resume from a newer save in memory.
  const auto newer = std::ranges::upper_bound(there, trainer.steps());
  if (newer == there.begin()) return;
  outcomes_.resume(*std::prev(newer));
  if (*std::prev(newer) == trainer.steps()) begun_at_ = trainer.steps();
}

bool RunSaver::lines_wait() const { return std::ranges::any_of(files_, &LineFile::waits); }

JsonValue RunSaver::with_line_positions(JsonValue state) const {
  JsonValue positions = JsonValue::object();
  for (const LineFile* const file : files_) file->note(positions);
  for (const auto& [name, value] : noted_.members()) state.set(name, value);
  return state.set(kLinePositions, std::move(positions));
}

std::optional<std::int64_t> RunSaver::kept_step() const try {
  const std::optional<std::int64_t> saved = outcomes_.saved();
  std::optional<std::int64_t> kept;
  if (!saved) return kept;
  for (const std::int64_t step : directory_.checkpoints())
    if (step <= *saved) kept = step;
  return kept;
} catch (const IoError&) {
  return {};
}

bool RunSaver::is_due(const StepInfo& info) const {
  const double waited = seconds_now() - begun_time_;
  const bool retries = schedule_.on_error == OnSaveError::kRetry && !outcomes_.failure().empty();
  return asked_ || (retries && waited >= schedule_.retry_seconds) ||
         (schedule_.every_steps > 0 && info.step % schedule_.every_steps == 0) ||
         (schedule_.every_minutes > 0 && waited >= 60 * schedule_.every_minutes);
}

// Whether a step since the last save has changed variables, or somebody asks for a save.
bool RunSaver::has_news(const Trainer& trainer) const {
  const DivergenceWatch& watch = trainer.record().watch();
  const bool failed = !outcomes_.failure().empty();
  return asked_ || failed || !watch.skipped_since() || watch.last_finite_step() > begun_at_;
}

// The previous step is complete, and the training stands at its end.
void RunSaver::before_step(Trainer& trainer, const StepInfo& info) {
  if (saving_.is_written()) settle(trainer);
  if (info.step > 0 && is_due(info) && has_news(trainer)) save_if_compared(trainer, info.step);
  look_at_step_metric(trainer, info.step);
  if (is_due_after(trainer, info)) trainer.loop().compare_processes_soon();
}

// Whether a save is known to come after this step.
bool RunSaver::is_due_after(const Trainer& trainer, const StepInfo& info) const {
  return (schedule_.every_steps > 0 && (info.step + 1) % schedule_.every_steps == 0) ||
         (schedule_.every_epochs > 0 && trainer.progress().steps_left_of_epoch() == 1 &&
          (info.epoch + 1) % schedule_.every_epochs == 0);
}

void RunSaver::save_if_compared(Trainer& trainer, std::int64_t steps) {
  if (begun_at_ == steps) return;
  if (trainer.loop().is_compared()) return save(trainer, steps);
  asked_ = true;
  trainer.loop().compare_processes_soon();
}

// A model that had gone bad before is not saved.
std::string RunSaver::after_bad_step(Trainer& trainer, const StepInfo& info, bool stops) {
  const DivergenceWatch& watch = trainer.record().watch();
  const std::string& large = watch.suspects().large_weight;
  const bool good = large.empty() && watch.losses().growth().empty();
  const bool saves = stops && info.step > 0 && good;
  try {
    if (saves && watch.changed_nothing()) save(trainer, info.step);
    settle(trainer);
  } catch (const Diverged&) {  // the variables had gone bad before; the step says so
  }
  const std::optional<std::int64_t> kept = kept_step();
  if (saves && !watch.changed_nothing())
    log_warning("the state before step ", info.step + 1, " is not saved, as that step changed ",
                watch.changes(), kept ? cat("; step ", *kept, " is kept") : "");
  if (stops && !large.empty() && kept)
    log_warning(large, ": the checkpoint of step ", *kept, " in ", directory_.path(),
                " may be of no use; an older one can be resumed from (", the_option("resume"),
                "=PATH)");
  if (stops) return "";
  const std::optional<std::int64_t> restored = step_to_restore(watch);
  return restored ? directory_.checkpoint_path(*restored) : "";
}

// The newest checkpoint, or if no step has been finite since that was restored, the one before it.
std::optional<std::int64_t> RunSaver::step_to_restore(const DivergenceWatch& watch) try {
  std::optional<std::int64_t> newest = kept_step();
  if (!newest) return {};
  if (restored_ >= 0 && restored_ <= *newest && watch.last_finite_step() <= restored_at_) {
    const std::vector<std::int64_t> there = directory_.checkpoints();
    const auto at = std::ranges::lower_bound(there, restored_);
    newest = at == there.begin() ? restored_ : *std::prev(at);
  }
  restored_ = *newest;
  restored_at_ = watch.last_finite_step();
  return newest;
} catch (const IoError&) {
  return {};
}

void RunSaver::after_epoch(Trainer& trainer, const StepInfo& info) {
  const bool ends = schedule_.every_epochs > 0 && (info.epoch + 1) % schedule_.every_epochs == 0;
  if ((ends || is_due(info)) && has_news(trainer)) save_if_compared(trainer, info.step);
  look_at_step_metric(trainer, info.step);
}

// Without data to evaluate, the metric is one of training steps, which each step has.
void RunSaver::look_at_step_metric(Trainer& trainer, std::int64_t steps) {
  if (schedule_.best.name.empty()) return;
  const std::vector<NamedValue>& metrics = trainer.record().step_metrics();
  if (std::ranges::find(metrics, schedule_.best.name, &NamedValue::name) == metrics.end()) return;
  measured_at_ = steps;
  look_at_best(trainer, steps);
}

void RunSaver::after_metrics(Trainer& trainer, const StepInfo& info,
                             const std::vector<NamedValue>& metrics) {
  if (std::ranges::find(metrics, schedule_.best.name, &NamedValue::name) == metrics.end()) return;
  measured_at_ = info.step;
  look_at_best(trainer, info.step);
}

void RunSaver::after_training(Trainer& trainer, const StepInfo& info) {
  settle(trainer);
  if (!outcomes_.failure().empty()) begun_at_ = -1;
  save(trainer, info.step);
  settle(trainer);
  look_at_step_metric(trainer, info.step);
  look_at_best(trainer, info.step);       // the metric of this step may be older than its save
  const std::string lost = sync_lines();  // the evaluation comes after the save
  require<IoError>(outcomes_.failure().empty(), outcomes_.failure());
  require<IoError>(lost.empty(), lost, "; the lines after the last save are lost");
}

void RunSaver::on_error(Trainer& trainer, const std::exception&) {
  try {
    settle(trainer);
  } catch (const Diverged&) {  // the run ends with the error that it has
  }
  if (const std::string lost = sync_lines(); !lost.empty())
    log_warning(lost, "; the lines after the last save are lost");
}

// Returns the first error, or "".
std::string RunSaver::sync_lines() {
  std::string lost;
  for (LineFile* const file : files_) try {
      file->sync();
    } catch (const IoError& error) {
      if (lost.empty()) lost = error.what();
    }
  return lost;
}

void RunSaver::save(Trainer& trainer, std::int64_t steps) {
  if (begun_at_ == steps) return;
  asked_ = false;
  if (const auto since = trainer.record().watch().losses().not_finite_since()) {
    if (std::exchange(warned_since_, *since) != *since)
      log_warning("the loss is not finite since step ", *since,
                  ", so no step is saved until it is; checkpoints from before are kept");
    return;
  }
  settle(trainer);
  begun_at_ = steps;
  begun_time_ = seconds_now();
  try {
    for (LineFile* const file : files_) file->sync();
  } catch (const IoError& error) {
    return outcomes_.fail(steps, error, kept_step());
  }
  const bool prunes = !trainer.record().watch().skipped_since();
  saving_.begin(snapshot_training(trainer, with_line_positions(JsonValue::object())),
                [this, steps, prunes](const CheckpointSnapshot& snapshot) {
                  write(snapshot, steps, prunes);
                });
  outcomes_.begin();
}

void RunSaver::write(const CheckpointSnapshot& snapshot, std::int64_t steps, bool prunes) {
  // One that is there could not be read, or not be saved in full.
  if (std::ranges::count(directory_.checkpoints(), steps) > 0) directory_.remove_checkpoint(steps);
  snapshot.save(directory_.checkpoint_path(steps), directory_.files(), {.refuse_not_finite = true});
  point(directory_, kLatestLink, steps);
  if (prunes) prune(steps);
}

void RunSaver::prune(std::int64_t newest) try {
  std::vector<std::int64_t> steps = directory_.checkpoints();
  std::erase_if(steps, [&](std::int64_t step) { return step > newest; });
  const auto kept = std::min(steps.size(), static_cast<std::size_t>(schedule_.keep));
  steps.resize(steps.size() - kept);
  for (const std::int64_t step : steps)
    if (!best_ || step != best_->step) remove(step);
} catch (const IoError& error) {
  log_warning("old checkpoints stay: ", error.what());
}

// A checkpoint that cannot be removed does not end the run.
void RunSaver::remove(std::int64_t step) try {
  directory_.remove_checkpoint(step);
} catch (const IoError& error) {
  if (first_time_logged(cat("stays: ", directory_.checkpoint_path(step))))
    log_warning("an old checkpoint stays: ", error.what());
}

// Waits for the save that is being written.
void RunSaver::settle(Trainer& trainer) {
  try {
    if (!saving_.settle()) return;
    outcomes_.succeed(begun_at_);
  } catch (const NotFiniteError& error) {
    refuse(trainer, error);
  } catch (const Error& error) {
    outcomes_.fail(begun_at_, error, kept_step());
  }
}

// A slot of the optimizer may overflow while loss and weights are finite.
void RunSaver::refuse(Trainer& trainer, const NotFiniteError& error) {
  if (trainer.built().options().on_nonfinite == OnNonfinite::kStop)
    if (const Divergence found = find_divergence(trainer.built(), trainer.record()))
      throw Diverged(found);
  if (!std::exchange(warned_of_values_, true))
    log_warning("step ", begun_at_, ": ", error.what(), "; checkpoints from before are kept");
}

// Only a saved checkpoint can be the best, so this is called after the save of a step.
void RunSaver::look_at_best(Trainer& trainer, std::int64_t steps) {
  if (schedule_.best.name.empty() || begun_at_ != steps || measured_at_ != steps) return;
  const double value = trainer.metric(schedule_.best.name);
  if (!std::isfinite(value)) {
    if (!std::exchange(warned_of_metric_, true))
      log_warning(option_name("best_metric"), "=", schedule_.best.str(), ": ", schedule_.best.name,
                  " is ", value, " after step ", steps,
                  "; no checkpoint becomes the best one while it is not finite");
    return;
  }
  if (best_ && (schedule_.best.largest ? value <= best_->value : value >= best_->value)) return;
  settle(trainer);
  if (!outcomes_.failure().empty() || outcomes_.saved() != steps) return;
  best_ = {schedule_.best, value, steps};
  point(directory_, kBestLink, steps);
  if (!trainer.record().watch().skipped_since()) prune(steps);  // removes the previous best
}

JsonValue RunSaver::state() const {
  JsonValue state = JsonValue::object();
  if (best_)
    state.set("metric", best_->by.name)
        .set("largest", best_->by.largest)
        .set("best", best_->value)
        .set("best_step", best_->step);
  return state;
}

void RunSaver::restore(const JsonValue& state) {
  if (!state.find("best")) return;
  Best best{.by = {state.at("metric").text(), state.at("largest").str() == "true"},
            .value = state.at("best").number(),
            .step = state.at("best_step").integer()};
  best_ = std::move(best);
  if (schedule_.best.name.empty() && has_best()) schedule_.best = best_->by;
}

JsonValue line_positions(const CheckpointInfo& info) try {
  const JsonValue* const positions = info.extra.find(kLinePositions);
  if (!positions) return JsonValue::object();
  for (const auto& [name, bytes] : positions->members()) bytes.unsigned_integer();
  return *positions;
} catch (const InvalidArgument& error) {
  throw IoError(cat(info.path, "/manifest.json: the positions of lines: ", error.what()));
}

}  // namespace belfry
