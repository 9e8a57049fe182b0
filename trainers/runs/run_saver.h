// Saves a run into its directory in the background, while it trains.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/trainers/callbacks/background_save.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/divergence_watch.h"
#include "belfry/trainers/runs/line_file.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {

// The metric that says which checkpoint is the best.
struct BestMetric {
  std::string name;      // of a metric of the trainer; "": there is no best
  bool largest = false;  // the largest value is best; else the smallest

  bool operator==(const BestMetric&) const = default;
  std::string str() const;  // "validation_loss:min"
};

struct SaveSchedule {
  std::int64_t every_steps = 0;   // 0: not by steps
  std::int64_t every_epochs = 1;  // 0: not by epochs
  double every_minutes = 0;       // 0: not by time
  int keep = 3;                   // newest ones, besides the best
  BestMetric best = {};
  OnSaveError on_error = OnSaveError::kRetry;
  // In the memory of each host (MemorySaver); none: what suits the number of processes.
  std::optional<std::int64_t> memory_every_steps = {};
  double retry_seconds = 60;  // for kRetry
};

// The outcomes of a run's saves. Reports the first failure in a row, and the first success after
// it.
class SaveOutcomes {
 public:
  explicit SaveOutcomes(OnSaveError on_error) : on_error_(on_error) {}

  void begin() { failure_.clear(); }
  void succeed(std::int64_t step);
  // The step that the run before saved last.
  void resume(std::int64_t step) { saved_ = step; }
  // Records a failed save. `kept`: the step of the checkpoint that remains. Throws IoError if the
  // failure is to end the training.
  void fail(std::int64_t step, const Error& error, std::optional<std::int64_t> kept);
  // Why the last save failed; "" if it succeeded or is still under way.
  const std::string& failure() const { return failure_; }
  // The step that was saved last, by this run or the one before; none before.
  std::optional<std::int64_t> saved() const { return saved_; }

 private:
  const OnSaveError on_error_;
  std::optional<std::int64_t> saved_;
  std::string failure_;
  int failed_in_a_row_ = 0;  // failed saves since the last good one
};

// Copies the state at the end of a step, before an evaluation, and writes the copy while training
// continues. Only one save runs at a time; the next one waits for it. It also saves at the end of
// the training. A best checkpoint of the directory stays until another is better by the same
// metric. A step whose loss or variables are not finite is not saved, and while steps are skipped
// (OnNonfinite) older checkpoints stay: the variables may be of no use. Variables that are not
// finite end the training if a loss that is not finite would. Several processes first compare their
// variables. If all know in advance that the step will be saved, they compare after it. Otherwise
// they compare, and save, after the next step.
class RunSaver final : public Callback {
 public:
  RunSaver(RunDirectory& directory, SaveSchedule schedule)
      : directory_(directory), schedule_(std::move(schedule)), outcomes_(schedule_.on_error) {}

  // Keeps the lines of a file as durable as checkpoints: each save first syncs them, and the
  // checkpoint records where they end (line_positions()).
  void keep_in_step(LineFile& file) { files_.push_back(&file); }
  // Whether lines of such a file could not be written yet.
  bool lines_wait() const;
  // `state` with where these files end and what note() was given, for a save elsewhere, which
  // nothing syncs.
  JsonValue with_line_positions(JsonValue state) const;
  // Members that each checkpoint has, besides those of a training.
  void note(JsonValue members) { noted_ = std::move(members); }
  // Saves before the next step, or of several processes the one after it, whatever the schedule
  // says.
  void save_soon() { asked_ = true; }
  // The step that was saved last, by this run or the one before; none before.
  std::optional<std::int64_t> saved_step() const { return outcomes_.saved(); }
  // The newest such step whose checkpoint still exists; none if there is no such checkpoint.
  std::optional<std::int64_t> kept_step() const;

  CallbackPhase phase() const override { return CallbackPhase::kSave; }
  // Throws OptionMistake if the metric does not exist, or if the directory's best checkpoint was
  // chosen by another metric.
  void check(Trainer& trainer) const override;
  void setup(Trainer& trainer) override;
  void before_step(Trainer& trainer, const StepInfo& info) override;
  std::string after_bad_step(Trainer& trainer, const StepInfo& info, bool stops) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;
  void after_metrics(Trainer& trainer, const StepInfo& info,
                     const std::vector<NamedValue>& metrics) override;
  // Throws IoError if the last save has failed, or if later lines cannot be written.
  void after_training(Trainer& trainer, const StepInfo& info) override;
  // Waits for the save under way, so that saved_step() is right.
  void on_error(Trainer& trainer, const std::exception& error) override;
  std::string name() const override { return "saver"; }
  JsonValue state() const override;
  void restore(const JsonValue& state) override;

 private:
  bool is_due(const StepInfo& info) const;
  bool has_news(const Trainer& trainer) const;
  std::optional<std::int64_t> step_to_restore(const DivergenceWatch& watch);
  bool is_due_after(const Trainer& trainer, const StepInfo& info) const;
  void save_if_compared(Trainer& trainer, std::int64_t steps);
  void save(Trainer& trainer, std::int64_t steps);
  void write(const CheckpointSnapshot& snapshot, std::int64_t steps, bool prunes);
  void prune(std::int64_t newest);
  void remove(std::int64_t step);
  std::string sync_lines();
  void settle(Trainer& trainer);
  void refuse(Trainer& trainer, const NotFiniteError& error);
  void look_at_best(Trainer& trainer, std::int64_t steps);
  void look_at_step_metric(Trainer& trainer, std::int64_t steps);
  bool has_best() const;

  RunDirectory& directory_;
  SaveSchedule schedule_;
  std::vector<LineFile*> files_;
  JsonValue noted_ = JsonValue::object();
  bool asked_ = false;
  std::int64_t warned_since_ =
      -1;  // the step since which the loss is not finite, of the last warning
  bool warned_of_values_ = false, warned_of_metric_ = false;
  std::int64_t restored_ = -1;     // the checkpoint that was restored last in place of a bad step
  std::int64_t restored_at_ = -1;  // DivergenceWatch::last_finite_step() then
  std::int64_t begun_at_ = -1;     // the step of the last save that was begun
  std::int64_t measured_at_ = -1;  // the step of the last value of the best checkpoint's metric
  double begun_time_ = 0;          // when it was begun, or the start of training
  struct Best {
    BestMetric by;
    double value;
    std::int64_t step;
  };
  std::optional<Best> best_;
  SaveOutcomes outcomes_;
  BackgroundSave saving_;  // last: it uses the others
};

// Where the lines of each file ended when the checkpoint was saved, for LineFile::go_on(). Throws
// IoError naming the manifest if no RunSaver has recorded that.
JsonValue line_positions(const CheckpointInfo& info);

}  // namespace belfry
