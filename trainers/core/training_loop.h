// The loop of a training: steps, epochs and the callbacks around them, until the end, a request to
// stop, or an error.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/trace/trace.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/equal_processes.h"
#include "belfry/trainers/core/trainer_options.h"
#include "belfry/trainers/core/training_activity.h"
#include "belfry/trainers/core/training_step.h"

namespace belfry {

class BuiltTraining;
class TrainingProgress;
class TrainingRecord;

class TrainingLoop {
 public:
  // Borrows all; callbacks get `trainer`.
  TrainingLoop(Trainer& trainer, BuiltTraining& built, TrainingProgress& progress,
               TrainingRecord& record);
  TrainingLoop(const TrainingLoop&) = delete;
  TrainingLoop& operator=(const TrainingLoop&) = delete;

  // Has each callback check() its options, for programs that write something before run().
  void check_callbacks();
  // Trainer::train().
  void run();
  // Whether run() has made its last step.
  bool is_complete() const { return is_complete_; }
  // Where run() is. Any thread may ask.
  const TrainingActivity& activity() const { return activity_; }

  // Trainer::stop().
  void stop();
  // Ends the training as stop() does, because of a signal. An evaluation or other work that is due
  // then is left to the resumed run. One of several processes informs the others in its next step,
  // and all end after that step.
  void interrupt(int signal);
  bool interrupted() const { return interruption_ != 0; }
  // The signal that any of the processes has received; 0 for none.
  int interruption() const { return interruption_; }

  // For callbacks: any of several processes may call it before a step. After that step all
  // processes compare their variables, and training ends with an error if they differ
  // (require_equal_processes()).
  void compare_processes_soon();
  // For callbacks that all processes have, after a step: compares variables by a hash that travels
  // with the next step, so that nobody waits. If they differ, training ends with an error after
  // that step. The end of the training, and each save, compare at once.
  void compare_processes_by_next_step(std::int64_t steps);
  // Compares the variables now, unless that has been done since the last step. All processes call
  // it after the same number of steps. It does nothing in a lone process.
  void compare_processes(std::int64_t steps);
  // The losses of all towers in the last step of several processes.
  const ReplicaDifference::Losses& losses_of_towers() const { return losses_.back(); }
  // Whether the present values have been compared, so all processes are known to have them.
  bool is_compared() const;

  // Whether the epoch before the next step has ended, and callbacks of later phases than kSave have
  // not been called for that. A checkpoint that is saved meanwhile says so, and the run that
  // resumes from it calls resume_epoch(), and so calls them first.
  bool epoch_is_open() const { return epoch_is_open_; }
  void resume_epoch() { epoch_is_open_ = true; }

  // For the callback that has evaluated and set the metrics: calls Callback::after_evaluation() of
  // all.
  void evaluated(const StepInfo& info);

 private:
  struct Source;
  void train();
  void agree();
  std::unique_ptr<Source> open_source();
  void make_steps(std::unique_ptr<Source>& source);
  bool is_at_end(Source& source);
  void end_epoch(const StepInfo& epoch, CallbackPhase first);
  bool run_step(Source& source, const StepInfo& step);
  void run_batches(Source& source, Trace* trace);
  void require_equal_hashes();
  void note_losses(const TrainingStep& run);
  void forget_losses(std::int64_t equal_steps);
  bool run_loss(TrainingStep& run, std::size_t number, Batch& batch, RunOptions how);
  void look_at_step(const StepInfo& step);
  bool has_overflowed();
  void end();
  void ask(StepRequest request);
  void agree_to_stop();
  void end_by(int signal);
  void tell(Callback& callback, const std::exception& error);
  void tell_metrics(const StepInfo& info);
  // Calls f() of each callback: the function `hook` of Callback, at a step counted from 1.
  template <class F>
  void call(const char* hook, std::int64_t step, const F& f);
  template <class F>
  void call_one(Callback& callback, const char* hook, std::int64_t step, const F& f);

  Trainer& trainer_;
  BuiltTraining& built_;
  TrainingProgress& progress_;
  TrainingRecord& record_;
  MetricTotals totals_;  // of the batches of a step
  TrainingActivity activity_;
  StepRange traced_ = {};
  std::optional<StepInfo> evaluated_at_;  // if an evaluation has set some of the new metrics
  bool stopped_ = false, is_complete_ = false;
  bool epoch_is_open_ = false;
  int interruption_ = 0;
  bool applied_ = true;               // the last step (TrainingStep::applied())
  std::vector<std::string> updated_;  // of several losses, those that the last step has updated
  int restores_ = 0;                  // of OnNonfinite::kRestore
  StepRequest request_;               // of this process
  bool comparison_due_ = false;       // after the running step
  bool stop_is_usual_ =
      false;  // all processes may stop now, because an epoch or an evaluation has ended
  std::int64_t compared_at_ = -1;  // steps
  ReplicaHashes hashes_;           // the last that were computed
  // Of the steps since variables were equal, and of the last one.
  std::vector<ReplicaDifference::Losses> losses_{1};
};

}  // namespace belfry
