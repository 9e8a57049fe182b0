#include "belfry/trainers/runs/stop_on_request.h"

#include <csignal>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/log.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/runs/run_saver.h"

namespace belfry {
namespace {

std::string name_of_signal(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGUSR1 ? "SIGUSR1" : "SIGTERM";
}

}  // namespace

void StopOnRequest::setup(Trainer&) { signals_.emplace(); }

void StopOnRequest::after_step(Trainer& trainer, const StepInfo&) {
  const StopRequests asked = StopSignals::take();
  if (asked.save && saver_)
    saver_->save_soon();
  else if (asked.save && trainer.graph().process().rank == 0)
    log_warning("SIGUSR2 saves into a run directory, and this run has none");
  const bool late = max_seconds_ > 0 && seconds_since_start() >= max_seconds_;
  if (reason_.empty() && (asked.signal != 0 || late)) {
    reason_ = asked.signal != 0 ? name_of_signal(asked.signal) : "the time is up";
    trainer.interrupt(asked.signal != 0 ? asked.signal : SIGTERM);
  }
  signal_ = trainer.interruption();
  if (signal_ != 0 && reason_.empty())
    reason_ = cat(name_of_signal(signal_), " in another process");
}

}  // namespace belfry
