// How a step runs on GPUs: one thread per physical GPU enqueues the work of its strands in the
// global order, launch by launch, or segment by segment once these are captured. Streams wait for
// each other by events, and hosts poll stamps; nothing waits for a GPU in any other way. See
// docs/gpu_execution.md.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "belfry/framework/base/profiler_range.h"
#include "belfry/framework/run/linked_plan.h"
#include "belfry/framework/run/ranks.h"
#include "belfry/framework/run/run_state.h"
#include "belfry/framework/run/staging.h"

namespace belfry {

class GpuExecutor {
 public:
  // Needs a plan with work on GPUs. Throws InvalidArgument for steps of
  // LockDuration::kEachVariable.
  GpuExecutor(const LinkedPlan& linked, RunState& run, Runtime& runtime,
              const FeedStaging& staging);
  ~GpuExecutor();
  GpuExecutor(const GpuExecutor&) = delete;
  GpuExecutor& operator=(const GpuExecutor&) = delete;

  // Call these before a run, in each thread that enqueues. connect() calls the function that
  // Ranks::begin() returned. capture() captures segments, if must_capture() says so. They throw
  // nothing: RunState::fail().
  void connect(int thread, const std::function<void(int thread)>& ranks);
  // Whether the run will replay segments that must be captured first. A run that is traced or
  // checked replays none.
  bool must_capture(bool watched);
  void capture(int thread);

  // The work of a thread in a run: it enqueues, and waits until its GPU has finished.
  void run(int thread);
  // Call it after a successful run. The next run may capture, or replay captured segments.
  void end();
  // Whether the GPU has stamped the launch.
  bool reached(StrandIndex strand, int position) const {
    return streams_[strand].finished.reached(run_.epoch(strand, position));
  }
  // Call it in a thread that waits for a stamp and has spun. It checks all streams for errors,
  // because the awaited one may wait for another, and sleeps for a moment.
  void nap();
  // The current command of a thread that enqueues; null if it is not in a run. Any thread may ask.
  const Command* place(int thread) const {
    return places_[at(thread - linked_.workers)].load(std::memory_order_relaxed);
  }
  // Call it after a failure, when no thread is inside the run.
  void recover();
  // Null if the plan has no part of a rank.
  Ranks* ranks() const { return ranks_.get(); }
  // Call it before communicators end: segments may refer to them.
  void forget_captures();

 private:
  void make_streams();
  void name_ranges();
  GpuStream& stream(StrandIndex strand) const { return *streams_[strand].stream; }
  GpuStream& serving(const Command& command) const;
  bool follow(const std::vector<Command>& commands, std::atomic<const Command*>& place);
  bool act(const Command& command);
  void enqueue(LaunchIndex launch);
  bool replays() const { return run_.replays && !refused_.load(); }
  void replay(const Command& begin);
  // Waits until the GPU has stamped the launch; false if a thread failed.
  bool await(StrandIndex strand, int position);

  // The stream is null on CPUs.
  struct StreamOf {
    GpuStream* stream = nullptr;
    Stamp finished;
  };
  using Captured = std::array<std::unique_ptr<GpuSegment>, FeedSlots::kCount>;  // by slot of feeds

  const LinkedPlan& linked_;
  const Plan& plan_;
  RunState& run_;
  Runtime& runtime_;
  const FeedStaging& staging_;
  Indexed<Strand, StreamOf> streams_;
  std::vector<std::atomic<const Command*>> places_;  // of the threads
  MemoryBlock counters_;                             // memory of stamps
  std::vector<std::unique_ptr<GpuEvent>> events_;
  std::vector<Captured> segments_;
  // What profilers show: a name per launch of a GPU, and one per segment.
  Indexed<Launch, RangeName> launch_ranges_;
  std::vector<RangeName> segment_ranges_;
  bool warm_ = false;  // a run has gone launch by launch, and none has failed since
  std::array<bool, FeedSlots::kCount> captured_ = {};
  std::atomic<bool> refused_ = false;  // a GPU has refused a segment, so all runs go by launches
  std::unique_ptr<Ranks> ranks_;       // if the plan has parts of ranks
};

// Whether the wait of a command of a CPU's strand, or of messages, is over. True for commands that
// do not wait. `gpus`: null if the plan has none.
inline bool is_over(const Command& command, const RunState& run, const GpuExecutor* gpus) {
  if (command.kind == Command::Kind::kWait) return run.reached(command.strand, command.position);
  return command.kind != Command::Kind::kWaitStamp ||
         gpus->reached(command.strand, command.position);
}

}  // namespace belfry
