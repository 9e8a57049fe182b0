// Ends a training run when a signal or its time asks for it.
#pragma once
#include <optional>
#include <string>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/util/stop_signals.h"

namespace belfry {

class RunSaver;

// Takes SIGINT, SIGTERM and SIGUSR1 from the beginning of training on, as long as it lives. The
// step that is running is completed, then the training ends as Trainer::interrupt() says. SIGUSR2
// saves and goes on.
class StopOnRequest final : public Callback {
 public:
  // `max_seconds` of the process, 0 for no limit; without `saver`, SIGUSR2 has nothing to do.
  StopOnRequest(double max_seconds, RunSaver* saver) : max_seconds_(max_seconds), saver_(saver) {}

  void setup(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepInfo& info) override;

  // What ended the training, SIGTERM for the time; 0 if nothing did.
  int signal() const { return signal_; }
  // For people: "SIGINT"; "" if nothing did.
  const std::string& reason() const { return reason_; }

 private:
  std::optional<StopSignals> signals_;
  double max_seconds_;
  RunSaver* saver_;
  int signal_ = 0;
  std::string reason_;
};

}  // namespace belfry
