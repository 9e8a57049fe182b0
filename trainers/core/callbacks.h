// What happens around the steps of a training run. progress.h and evaluation.h have two that every
// program uses.
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
  kJudge,     // refuses or stops the training, by what earlier phases have found
  kOwn,       // the program's own. What they write to variables after an epoch is in the next
              // checkpoint.
};

// Called on the thread of Trainer::train(), at each point in the order of their phases, and within
// a phase in that of TrainerOptions::callbacks. An exception ends the training and leaves train().
// Callbacks after it are then called only for on_error(). If after_training() throws an IoError,
// the callbacks after it are still called, and then the error leaves train().
struct Callback {
  virtual ~Callback() = default;
  virtual CallbackPhase phase() const { return CallbackPhase::kOwn; }
  // Called before setup(), and by programs before they write anything for the run. Throws for
  // options that the callback cannot serve.
  virtual void check(Trainer&) const {}
  // Graph and session exist; before the first step.
  virtual void setup(Trainer&) {}
  // Before and after step `info.step`, counted from 0. `info.seconds` is the time of the call.
  virtual void before_step(Trainer&, const StepInfo&) {}
  virtual void after_step(Trainer&, const StepInfo&) {}
  // Before after_step(), if the loss or gradients of step `info.step` are not finite
  // (DivergenceWatch::changes() says what it changed), and the training stops or restores.
  // `info.step` steps are complete. A callback that saves returns its newest checkpoint, "" for
  // none. It first saves this state if the training `stops` and the step changed nothing.
  virtual std::string after_bad_step(Trainer&, const StepInfo&, [[maybe_unused]] bool stops) {
    return "";
  }
  // After the last step of epoch `info.epoch`; `info.step` steps are complete. A run that resumes
  // from the save of an epoch first calls the callbacks of phase kSave and later ones again: they
  // were called after that save, so it has nothing of what they did.
  virtual void after_epoch(Trainer&, const StepInfo&) {}
  // After an evaluation of the test data, whose metrics the trainer has: `info.step` steps are
  // complete, the last of them in epoch `info.epoch`. Called by TrainingLoop::evaluated().
  virtual void after_evaluation(Trainer&, const StepInfo&) {}
  // Called when metrics have been set, by an evaluation or by TrainingRecord::set_metric(), after
  // all callbacks have been called at that point. `info.step` steps are complete. Callbacks that
  // record or use metrics do so here.
  virtual void after_metrics(Trainer&, const StepInfo&, const std::vector<NamedValue>&) {}
  // Called once, after all calls of the functions above.
  virtual void after_training(Trainer&, const StepInfo&) {}
  // Called instead of after_training() when train() is about to throw `error`, which the data, a
  // kernel or a callback threw. If a callback throws here, that is logged, and the others are still
  // called.
  virtual void on_error(Trainer&, const std::exception& /*error*/) {}

  // Called instead of all functions above if the run in the run directory has already ended. Its
  // variables are restored, and nothing is trained.
  virtual void on_ended_run(Trainer&) {}

  // The names of metrics that it sets, so that options may name them before it has set them. Names
  // of an evaluation begin with "validation_".
  virtual std::vector<std::string> metrics() const { return {}; }

  // A callback that remembers something from step to step has a name, under which checkpoints keep
  // its state. No two callbacks of a run have the same one; "" has no state.
  virtual std::string name() const { return ""; }
  // What a resumed run needs to continue as this one would: an object. It is called between two
  // steps, on the thread of train(). Nothing in the result may depend on time, paths or devices,
  // because a run that never stopped must have the same.
  virtual JsonValue state() const { return JsonValue::object(); }
  // Takes the result of state(), before setup(). It is not called if the checkpoint has no state of
  // this name. Throws InvalidArgument, and changes nothing, for a value that state() cannot return.
  virtual void restore(const JsonValue&) {}
};

}  // namespace belfry
