// What a step asks of ranks, and what those ask who watch them. Each rank does its part of a
// collective in a stream or process of its own. All ranks see the same reductions in the same
// order, and no reduction ends before all ranks have begun it.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "belfry/framework/device/gpu_streams.h"
#include "belfry/framework/plan/schedule.h"

namespace belfry {

struct LinkedPlan;
class RunState;
struct Runtime;

// How threads of a run, and the watch over other processes, see whether ranks come further.
class RankWatch {
 public:
  virtual ~RankWatch() = default;

  // A part is about to be enqueued. It has finished when the strand has counted to `epoch`.
  virtual void expect(StrandIndex strand, std::int64_t epoch) = 0;
  // While threads wait: throws CommError for a part that has failed, or not finished in time.
  virtual void check() = 0;

  // For the watch over other processes, by its thread: what has been enqueued for a while and has
  // not finished, if there is something.
  struct Waiting {
    std::string what;
    std::chrono::steady_clock::time_point since;
  };
  virtual std::optional<Waiting> waiting() = 0;
  // How many parts have been enqueued in all runs.
  virtual std::int64_t enqueued() const = 0;
  // Whether other processes have enqueued fewer: then check() throws for nothing that waits, as
  // these may be between two steps. At first they may have.
  virtual void await_others(bool late) = 0;
};

class Ranks {
 public:
  virtual ~Ranks() = default;

  // Before a run. Returns what each thread that enqueues must do first, if ranks must connect; it
  // makes communicators, which waits for all processes, and runs each collective of the thread's
  // ranks once, with whatever is in its outputs. Processes that must connect compare their
  // collectives first: InvalidArgument if they differ.
  virtual std::function<void(int thread)> begin() = 0;
  // After a run, when its streams are idle. After fail(), the next begin() starts anew.
  virtual void end() noexcept = 0;
  // After a failure, when no thread is inside the run: ends everything that waits for other ranks.
  virtual void fail() noexcept = 0;

  virtual RankWatch& watch() = 0;
};

// What ranks use of the strands that they communicate on.
struct RankStrands {
  std::function<GpuStream&(StrandIndex)> stream;
  std::function<Stamp(StrandIndex)> stamp;
  // Waits until the first launch of the strand has been stamped. False if the run has failed.
  std::function<bool(StrandIndex)> await_first;
};

// Each rank is a GPU of this process, and its part a launch on a strand for communication.
std::unique_ptr<Ranks> make_nccl_ranks(const LinkedPlan& linked, RunState& run, Runtime& runtime,
                                       RankStrands strands);

}  // namespace belfry
