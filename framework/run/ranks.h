// The interface of ranks for steps, and for threads that watch ranks. Each rank does its part of a
// collective in its own stream or process. All ranks see the same reductions in the same order, and
// no reduction ends before all ranks have begun it.
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

// Reports to threads of a run, and to the watch over other processes, whether ranks make progress.
class RankWatch {
 public:
  virtual ~RankWatch() = default;

  // Announces a part that is about to be enqueued. It has finished when the strand has counted to
  // `epoch`.
  virtual void expect(StrandIndex strand, std::int64_t epoch) = 0;
  // Call it while threads wait. Throws CommError for a part that has failed, or has not finished in
  // time.
  virtual void check() = 0;

  // A part that was enqueued a while ago and has not finished, if any. Only the thread of the watch
  // over other processes asks.
  struct Waiting {
    std::string what;
    std::chrono::steady_clock::time_point since;
  };
  virtual std::optional<Waiting> waiting() = 0;
  // The number of parts enqueued in all runs.
  virtual std::int64_t enqueued() const = 0;
  // Sets whether other processes have enqueued fewer parts. If so, check() lets parts wait, because
  // those processes may be between two steps. Initially true.
  virtual void await_others(bool late) = 0;
};

class Ranks {
 public:
  virtual ~Ranks() = default;

  // Call it before a run. If ranks must connect, it returns a function that each enqueuing thread
  // must call first. This makes communicators, which waits for all processes. It then runs each
  // collective of the thread's ranks once, on any data. Processes that must connect compare their
  // collectives first: InvalidArgument if they differ.
  virtual std::function<void(int thread)> begin() = 0;
  // Call it after a run, when its streams are idle. After fail(), the next begin() starts over.
  virtual void end() noexcept = 0;
  // Call it after a failure, when no thread is inside the run. It ends everything that waits for
  // other ranks.
  virtual void fail() noexcept = 0;

  virtual RankWatch& watch() = 0;
};

// Access of ranks to the strands on which they communicate.
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
