// One run of a step, shared by its threads: how far each strand is, the recording, and the first
// error.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "belfry/framework/plan/schedule.h"
#include "belfry/framework/run/workers.h"
#include "belfry/framework/trace/recording.h"

namespace belfry {

class OutputWatch;

class RunState {
 public:
  // `gate`: where threads of the run sleep.
  RunState(const ExecutionSchedule& schedule, Gate& gate);

  // Call it before a run. Counts of launches continue from run to run.
  void begin();
  // Call it before work that no run enqueues, such as connecting ranks. The epochs of this work
  // follow those of all runs so far.
  void rebase();
  // The count of a strand when its launch `position` has run in this run.
  std::int64_t epoch(StrandIndex strand, int position) const {
    return bases_[strand] + position + 1;
  }
  // The count of a strand after all runs so far.
  std::int64_t counted(StrandIndex strand) const { return epochs(strand, runs_); }

  // Records that a launch of a CPU has run, or that a launch of a GPU has been enqueued.
  void signal(StrandIndex strand, int position, int shard = 0) {
    signals_[strand][at(shard)].set(epoch(strand, position), gate_);
  }
  // Whether all shards have signalled the launch, or the run has failed.
  bool reached(StrandIndex strand, int position) const {
    const std::int64_t count = epoch(strand, position);
    return std::ranges::all_of(signals_[strand],
                               [&](const Signal& signal) { return signal.reached(count); });
  }
  // Waits until reached().
  void await(StrandIndex strand, int position, std::chrono::nanoseconds spin) {
    wait_until([&] { return reached(strand, position); }, gate_, spin);
  }
  Gate& gate() { return gate_; }
  Alarm& messages() { return messages_; }

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  const std::atomic<bool>& failure() const { return failed_; }
  // Call it in a handler. Keeps the exception if it is the first, and ends all waits.
  void fail() noexcept;
  // The first error of a run that has failed.
  std::exception_ptr error();
  // Ends all waits. A thread that stops early calls this last, so that none of its own later
  // signals hides the poison.
  void poison();
  // Call it when no thread is inside the run. The next run can wait again. Returns the first error.
  std::exception_ptr recover();

  std::uint64_t step = 0;                // part of the key of random ops
  int slot = 0;                          // slot of the feeds
  bool replays = false;                  // GPUs get their work in segments
  std::atomic<bool> has_written{false};  // the run has begun to write variables
  std::optional<Recording> recording;    // if it is traced
  OutputWatch* watch = nullptr;          // looks at what launches have computed; null: nobody does

 private:
  std::int64_t epochs(StrandIndex strand, std::int64_t runs) const {
    return runs * std::ssize(schedule_.strands[strand].launches);
  }

  const ExecutionSchedule& schedule_;
  Gate& gate_;
  Alarm messages_;
  Indexed<Strand, std::vector<Signal>> signals_;  // by shard
  Indexed<Strand, std::int64_t> bases_;           // launches of earlier runs
  std::int64_t runs_ = 0;
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace belfry
