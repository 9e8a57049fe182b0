// What happens around the steps of a training run.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/rate.h"

namespace belfry {

class Trainer;

// Called on the thread of Trainer::train(), at each point in the order of
// TrainerOptions::callbacks. An exception ends the training and leaves train(), so that callbacks
// behind it are not called, but for on_error().
//
// For a recipe the order is: StopOnRequest, MemoryWatch, StatsLog, HashLog, TensorBoard, what
// saves, Progress, Evaluation, TellMemory, EarlyStop, then the recipe's own in the order of its
// list. So an epoch is saved before anything that may fail looks at it; and what a callback writes
// to variables behind an epoch is in the next checkpoint, not in that of the epoch.
struct Callback {
  virtual ~Callback() = default;
  // Graph and session exist; before the first step.
  virtual void setup(Trainer&) {}
  // Around step `info.step`, the first being 0; `info.seconds` is then and after it.
  virtual void before_step(Trainer&, const StepInfo&) {}
  virtual void after_step(Trainer&, const StepInfo&) {}
  // After the last step of epoch `info.epoch`; `info.step` steps are complete.
  virtual void after_epoch(Trainer&, const StepInfo&) {}
  // After an evaluation of the test data, whose metrics the trainer has: `info.step` steps are
  // complete, the last of them in epoch `info.epoch`. Called by Trainer::evaluated().
  virtual void after_evaluation(Trainer&, const StepInfo&) {}
  // Once, after the last of the above.
  virtual void after_training(Trainer&, const StepInfo&) {}
  // Instead, when train() is about to throw `error`: what the data, a kernel or a callback threw.
  // All callbacks are told, also when one throws here, which is logged.
  virtual void on_error(Trainer&, const std::exception& /*error*/) {}

  // A callback that remembers something from step to step has a name, under which checkpoints keep
  // its state. No two callbacks of a run have the same one; "" has no state.
  virtual std::string name() const { return ""; }
  // What a resumed run needs to go on as this one would: an object. It is asked for between two
  // steps, on the thread of train(), and says what the training has made of the callback: nothing
  // that depends on time, paths or devices, as a run that was not stopped must have the same.
  virtual Json state() const { return Json::object(); }
  // Takes what state() gave, before setup(). It is not called if the checkpoint has no state of
  // this name. Throws InvalidArgument for what state() cannot give, and has then changed nothing.
  virtual void restore(const Json&) {}
};

// Shows steps, loss, metrics, speed, and the time that is left. On a terminal: one line that
// updates itself and gives up details until it fits the terminal's width. Elsewhere: a line for the
// first step and for the end of each epoch. And in between whenever one is due (Console::due).
//
// The speed is that of the steps since the last line, without what happens between steps. The time
// left is that until the last step of the run, if the rest goes on as the run has gone since the
// end of its first step, with evaluations, checkpoints and other callbacks.
class Progress final : public Callback {
 public:
  explicit Progress(Console& console) : console_(console) {}
  void setup(Trainer& trainer) override;
  void before_step(Trainer& trainer, const StepInfo& info) override;
  void after_step(Trainer& trainer, const StepInfo& info) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;

  // Of the line. Those of the highest rank give way first.
  struct Part {
    std::string text;
    int rank;
  };

 private:
  std::vector<Part> parts(const Trainer& trainer) const;
  void show(const Trainer& trainer);

  Console& console_;
  std::int64_t total_steps_ = 0;
  std::int64_t first_step_ = -1, done_ = 0;  // of this run; complete ones of all runs
  int epoch_ = 0;                            // of the last step
  // Seconds since training began.
  double began_ = 0, ended_ = 0;  // the last step
  double first_ended_ = 0;        // the first step
  std::int64_t shown_step_ = -1;
  // Of the steps since the last line.
  std::int64_t rate_steps_ = 0;
  double rate_seconds_ = 0;
  // Parts from this rank on are hidden, until the width changes, so that the status line is steady.
  int hidden_rank_ = 0;
  std::size_t width_ = 0;
};

class Evaluator;

// Evaluates the test data after each epoch, and after a last epoch that was cut short, unless a
// signal cut it: sets the metrics "validation_loss" and "validation_<metric>" of the trainer and
// prints a line; before it, how many samples have been tested, whenever that is due. A run that
// goes on from the end of an epoch first does the evaluation that was due there. Without test data
// it does nothing.
class Evaluation final : public Callback {
 public:
  explicit Evaluation(Console& console);
  ~Evaluation() override;
  void setup(Trainer& trainer) override;
  void before_step(Trainer& trainer, const StepInfo& info) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;
  void after_training(Trainer& trainer, const StepInfo& info) override;
  std::string name() const override { return "evaluation"; }
  Json state() const override;
  void restore(const Json& state) override;

 private:
  void evaluate(Trainer& trainer, const StepInfo& info);

  Console& console_;
  std::unique_ptr<Evaluator> evaluator_;
  std::int64_t evaluated_at_ = 0;  // steps
  bool evaluated_ = false;         // by this run
  bool knows_ = false;             // evaluated_at_ is of the run that this one goes on from
  bool is_due_ = false;            // before the first step of this run
};

}  // namespace belfry
