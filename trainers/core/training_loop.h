// The loop of a training: steps, epochs and the callbacks around them, until the end, a request to
// stop, or an error.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include "belfry/framework/trace/trace.h"
#include "belfry/trainers/core/callbacks.h"
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
  // Ends the training so for a signal. What is due then, as an evaluation, is left to the run that
  // resumes. One of several processes tells the others in its next step, and all end after that.
  void interrupt(int signal);
  bool interrupted() const { return interruption_ != 0; }
  // The signal that came to any of the processes; 0 for none.
  int interruption() const { return interruption_; }

  // Before a step, in any of several processes: all compare their variables after it, and
  // training ends with an error if they differ (require_equal_processes()). For callbacks.
  void compare_processes_soon();
  // Compares them now, unless that was done; all processes call it, after so many steps. It does
  // nothing in a process that is alone.
  void compare_processes(std::int64_t steps);
  // Whether all processes are known to have the present values.
  bool is_compared() const;

  // For the callback that has evaluated and set the metrics: calls Callback::after_evaluation() of
  // all.
  void evaluated(const StepInfo& info);

 private:
  struct Source;
  void train();
  void agree();
  std::unique_ptr<Source> open_source();
  void make_steps(std::unique_ptr<Source>& source);
  bool run_step(Source& source, const StepInfo& step);
  void run_batches(Source& source, double rate, Trace* trace);
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
  int interruption_ = 0;
  StepRequest request_;            // of this process
  bool comparison_due_ = false;    // after the running step
  bool stop_is_usual_ = false;     // now: an epoch or an evaluation has ended
  std::int64_t compared_at_ = -1;  // steps
};

}  // namespace belfry
