#include "belfry/framework/run/run_state.h"

#include <utility>

namespace belfry {

RunState::RunState(const ExecutionSchedule& schedule, Gate& gate)
    : schedule_(schedule), gate_(gate), bases_(schedule.strands.size()) {
  for (const Strand& strand : schedule.strands)
    signals_.push_back(std::vector<Signal>(at(strand.shards)));
}

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
  messages_.ring();
}

std::exception_ptr RunState::error() {
  const std::lock_guard lock(error_mutex_);
  return error_;
}

void RunState::poison() {
  for (std::vector<Signal>& shards : signals_)
    for (Signal& signal : shards) signal.set(Signal::kPoison, gate_);
  messages_.ring();
}

std::exception_ptr RunState::recover() {
  for (const StrandIndex s : signals_.indices())
    for (Signal& signal : signals_[s]) signal.set(counted(s), gate_);
  failed_.store(false, std::memory_order_relaxed);
  return std::exchange(error_, nullptr);
}

}  // namespace belfry
