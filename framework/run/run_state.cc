#include "belfry/framework/run/run_state.h"

#include <utility>

namespace belfry {

RunState::RunState(const ExecutionSchedule& schedule, Gate& gate)
    : schedule_(schedule),
      gate_(gate),
      signals_(schedule.strands.size()),
      bases_(schedule.strands.size()) {}

void RunState::begin() {
  rebase();
  ++runs_;
}

void RunState::rebase() {
  has_written.store(false, std::memory_order_relaxed);
  for (const StrandIndex s : bases_.indices()) bases_[s] = counted(s);
}

void RunState::fail() noexcept {
  {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
  failed_.store(true, std::memory_order_release);
  poison();
}

void RunState::poison() {
  for (Signal& signal : signals_) signal.set(Signal::kPoison, gate_);
}

std::exception_ptr RunState::recover() {
  for (const StrandIndex s : signals_.indices()) signals_[s].set(counted(s), gate_);
  failed_.store(false, std::memory_order_relaxed);
  return std::exchange(error_, nullptr);
}

}  // namespace belfry
