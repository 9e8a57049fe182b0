// One run of a step, as its threads share it: how far each strand is, what was recorded, and the
// first error.
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

class RunState {
 public:
  // `gate`: where threads of the run sleep.
  RunState(const ExecutionSchedule& schedule, Gate& gate);

  // Before a run. Counts of launches go on from run to run.
  void begin();
  // Before work that no run enqueues, such as connecting ranks: its epochs follow those of all runs
  // so far.
  void rebase();
  // What a strand has counted when launch `position` of it has run in this run.
  std::int64_t epoch(StrandIndex strand, int position) const {
    return bases_[strand] + position + 1;
  }
  // What it has counted after all runs so far.
  std::int64_t counted(StrandIndex strand) const { return epochs(strand, runs_); }

  // A launch of a CPU has run, or one of a GPU has been enqueued.
  void signal(StrandIndex strand, int position, int shard = 0) {
    signals_[strand][at(shard)].set(epoch(strand, position), gate_);
  }
  // Whether that is so in all shards, or the run has failed.
  bool reached(StrandIndex strand, int position) const {
    const std::int64_t count = epoch(strand, position);
    return std::ranges::all_of(signals_[strand],
                               [&](const Signal& signal) { return signal.reached(count); });
  }
  // Waits until that, or until the run fails.
  void await(StrandIndex strand, int position, std::chrono::nanoseconds spin) {
    wait_until([&] { return reached(strand, position); }, gate_, spin);
  }
  Gate& gate() { return gate_; }
  Alarm& messages() { return messages_; }

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  const std::atomic<bool>& failure() const { return failed_; }
  // Call it in a handler: keeps the exception if it is the first. Ends all waits.
  void fail() noexcept;
  // The first error of a run that has failed.
  std::exception_ptr error();
  // Ends all waits. Each thread that stops early does this last, so that no later signal of its own
  // hides it.
  void poison();
  // When no thread is inside the run: the next run can wait again. Returns the first error.
  std::exception_ptr recover();

  std::uint64_t step = 0;                // of random ops
  int slot = 0;                          // of the feeds
  bool replays = false;                  // GPUs get their work in segments
  std::atomic<bool> has_written{false};  // variables, perhaps in part
  std::optional<Recording> recording;    // if it is traced

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
