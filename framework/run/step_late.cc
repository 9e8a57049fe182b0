// What is late of a run (PlanNode::late) is done beside the next run of its step, from what has
// been copied to memory that is kept, or before anybody can see that it has not been done. It
// belongs to its own run: if a later one fails, it is done all the same.
#include <algorithm>

#include "belfry/framework/run/step.h"

namespace belfry {

std::unique_lock<RunLock> between_runs(Runner& runner) {
  std::unique_lock lock(runner.mutex);
  if (runner.pending) runner.pending->flush();
  return lock;
}

std::shared_lock<RunLock> beside_runs(Runner& runner) {
  for (;;) {
    std::shared_lock lock(runner.mutex);
    if (!runner.pending) return lock;
    lock.unlock();
    between_runs(runner);
  }
}

// Before a run of this step, which may be traced.
void Step::State::begin_late(bool traced) {
  if (runner.pending && (runner.pending != this || traced)) runner.pending->flush();
  does_late_ = runner.pending == this;
}

// Behind one that has succeeded.
void Step::State::leave_late(bool traced) {
  if (late.empty()) return;
  std::ranges::fill(late_done, false);
  runner.pending = this;
  if (traced) flush();
}

void Step::State::run_late(std::size_t t) {
  try {
    run_launch(t, kAlone);
  } catch (...) {
    late_failed_.store(true, std::memory_order_relaxed);
    throw;
  }
  late_done[t] = true;
}

void Step::State::flush() {
  check_floating_point_mode();
  try {
    for (const int t : late)
      if (!late_done[at(t)]) run_late(at(t));
  } catch (...) {
    lose_late();
    throw;
  }
  runner.pending = nullptr;
}

// A part of it has been done, and cannot be done again.
void Step::State::lose_late() {
  runner.pending = nullptr;
  late_failed_.store(false, std::memory_order_relaxed);
  const std::lock_guard lock(runner.failures);
  for (const int t : late) suspect(plan.node(tasks[at(t)].launch->node));
}

// After a run that has failed. All workers are parked.
void Step::State::settle_late() noexcept {
  if (runner.pending != this) return;
  if (late_failed_.load(std::memory_order_relaxed)) return lose_late();
  try {
    flush();
  } catch (...) {  // its variables are suspects; the run throws its own error
  }
}

}  // namespace belfry
