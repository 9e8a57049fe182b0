// Ends a training run when a signal or its time asks for it.
#pragma once
#include <optional>
#include <string>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/util/stop_signals.h"

namespace belfry {

class RunSaver;

// "SIGTERM", say; of the signals of StopSignals.
std::string name_of_signal(int signal);

// From the beginning of training, and while this object lives, it takes SIGINT, SIGTERM, SIGHUP and
// SIGUSR1, as StopSignals does.
// The running step is completed, then the training ends as TrainingLoop::interrupt() says. On
// SIGUSR2 it saves, and the training continues. A signal that arrives between two steps ends the
// training before the next step.
class StopOnRequest final : public Callback {
 public:
  // `max_seconds` counts from the start of the process, 0 for no limit. Without `saver`, SIGUSR2
  // does nothing.
  StopOnRequest(double max_seconds, RunSaver* saver) : max_seconds_(max_seconds), saver_(saver) {}

  CallbackPhase phase() const override { return CallbackPhase::kRequest; }
  void setup(Trainer& trainer) override;
  void before_step(Trainer& trainer, const StepInfo& info) override;
  void after_step(Trainer& trainer, const StepInfo& info) override;
  // Ends the training of a lone process if a signal came; several processes end after a step. Long
  // work between two steps, such as an evaluation, calls it so that it can be interrupted.
  void look(Trainer& trainer);

  // The signal that ended the training, SIGTERM if it was the time; 0 if nothing did.
  int signal() const { return signal_; }
  // The reason for people: "SIGINT"; "" if nothing ended it.
  const std::string& reason() const { return reason_; }

 private:
  void end(Trainer& trainer, int signal);

  std::optional<StopSignals> signals_;
  double max_seconds_;
  RunSaver* saver_;
  int signal_ = 0;
  std::string reason_;
};

}  // namespace belfry
