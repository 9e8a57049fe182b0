// What happens around the steps of a training run. progress.h and evaluation.h have two that every
// program shows.
#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/trainers/util/learning_rate.h"

namespace belfry {

class Trainer;
struct NamedValue;

// Callbacks of an earlier phase are called first, at each of these points.
enum class CallbackPhase : std::uint8_t {
  kRequest,   // looks for requests to stop or to save
  kMeasure,   // measures what others record
  kRecord,    // writes what the training has done
  kCheck,     // ends the training with an error if something is wrong
  kSave,      // saves the epoch, before anything that may fail looks at it
  kShow,      // shows people how far the training is
  kEvaluate,  // sets metrics
  kJudge,     // refuses or stops the training, by what is known now
  kOwn,  // of the program. What they write to variables after an epoch is in the next checkpoint.
};

// Called on the thread of Trainer::train(), at each point in the order of their phases, and within
// a phase in that of TrainerOptions::callbacks. An exception ends the training and leaves train(),
// so that callbacks after it are not called, but for on_error(). An IoError of after_training()
// leaves train() too, when those after it have been called.
struct Callback {
  virtual ~Callback() = default;
  virtual CallbackPhase phase() const { return CallbackPhase::kOwn; }
  // In front of setup(); programs call it before they write anything for the run, too. Throws for
  // options that cannot be served.
  virtual void check(Trainer&) const {}
  // Graph and session exist; before the first step.
  virtual void setup(Trainer&) {}
  // Around step `info.step`, the first being 0; `info.seconds` is then and after it.
  virtual void before_step(Trainer&, const StepInfo&) {}
  virtual void after_step(Trainer&, const StepInfo&) {}
  // After the last step of epoch `info.epoch`; `info.step` steps are complete.
  virtual void after_epoch(Trainer&, const StepInfo&) {}
  // After an evaluation of the test data, whose metrics the trainer has: `info.step` steps are
  // complete, the last of them in epoch `info.epoch`. Called by TrainingLoop::evaluated().
  virtual void after_evaluation(Trainer&, const StepInfo&) {}
  // When metrics were set: by an evaluation, or by TrainingRecord::set_metric() in a function of
  // any callback, all of which have been called then. `info.step` steps are complete. What records
  // metrics, or goes by them, does so here.
  virtual void after_metrics(Trainer&, const StepInfo&, const std::vector<NamedValue>&) {}
  // Once, after the last of the above.
  virtual void after_training(Trainer&, const StepInfo&) {}
  // Instead, when train() is about to throw `error`: what the data, a kernel or a callback threw.
  // All callbacks are told, also when one throws here, which is logged.
  virtual void on_error(Trainer&, const std::exception& /*error*/) {}

  // Instead of all of these, by programs whose run directory has a run that had ended before: its
  // variables are there, and nothing is trained.
  virtual void on_ended_run(Trainer&) {}

  // The names of metrics that it sets, so that options may name them before it has set them. Names
  // of an evaluation begin with "validation_".
  virtual std::vector<std::string> metrics() const { return {}; }

  // A callback that remembers something from step to step has a name, under which checkpoints keep
  // its state. No two callbacks of a run have the same one; "" has no state.
  virtual std::string name() const { return ""; }
  // What a resumed run needs to go on as this one would: an object. It is asked for between two
  // steps, on the thread of train(), and says what the training has made of the callback. Nothing
  // in it depends on time, paths or devices, as a run that was not stopped must have the same.
  virtual JsonValue state() const { return JsonValue::object(); }
  // Takes what state() gave, before setup(). It is not called if the checkpoint has no state of
  // this name. Throws InvalidArgument for what state() cannot give, and has then changed nothing.
  virtual void restore(const JsonValue&) {}
};

}  // namespace belfry
