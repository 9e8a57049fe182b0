#include "belfry/trainers/runs/stop_on_request.h"

#include <csignal>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/runs/run_saver.h"

namespace belfry {

std::string name_of_signal(int signal) {
  switch (signal) {
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    case SIGUSR1: return "SIGUSR1";
    default: return "SIGTERM";
  }
}

void StopOnRequest::setup(Trainer&) { signals_.emplace(); }

// A run makes a step, whenever the signal comes: so it gets on, however often it is ended.
void StopOnRequest::before_step(Trainer& trainer, const StepInfo&) {
  if (trainer.progress().steps_of_run() > 0) look(trainer);
}

void StopOnRequest::look(Trainer& trainer) {
  const int signal = StopSignals::signal();
  if (signal == 0 || trainer.graph().process().size > 1) return;
  if (reason_.empty()) end(trainer, signal);
  signal_ = trainer.loop().interruption();
}

void StopOnRequest::after_step(Trainer& trainer, const StepInfo&) {
  const StopRequests asked = StopSignals::take();
  if (asked.save && saver_)
    saver_->save_soon();
  else if (asked.save && trainer.graph().process().rank == 0)
    log_warning("SIGUSR2 saves into a run directory, and this run has none");
  const bool late = max_seconds_ > 0 && seconds_since_start() >= max_seconds_;
  if (reason_.empty() && (asked.signal != 0 || late)) end(trainer, asked.signal);
  signal_ = trainer.loop().interruption();
  if (signal_ != 0 && reason_.empty())
    reason_ = cat(name_of_signal(signal_), " in another process");
}

// `signal` is 0 if the time is up.
void StopOnRequest::end(Trainer& trainer, int signal) {
  reason_ = signal != 0 ? name_of_signal(signal) : "the time is up";
  trainer.loop().interrupt(signal != 0 ? signal : SIGTERM);
}

}  // namespace belfry
