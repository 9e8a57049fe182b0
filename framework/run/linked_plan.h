// A plan with its memory and pointers: what its launches need to run.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "belfry/framework/device/gpu_streams.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/arena_guard.h"
#include "belfry/framework/run/ticket.h"
#include "belfry/framework/run/workers.h"

namespace belfry {

// A launch with its pointers.
struct Task {
  const Launch* launch;
  std::span<void*const> inputs, outputs;
  std::byte* workspace = nullptr;
  std::int64_t parts = 1;          // chunks, when workers share it
  std::vector<Wait> waits;         // on lanes of other workers: for their signals
  std::vector<Wait> stamps;        // on lanes of GPUs: for their stamps
  bool signals = false;            // somebody waits for its signal
  std::vector<std::mutex*> locks;  // of the variables that it touches
  bool keeps_locks = false;        // for the next task
};

// What the thread that enqueues for a GPU does at once: a launch, or a segment of several, with
// what it waits for and leaves for others. The signal of a GPU's lane counts launches that have
// been enqueued. `stamps` and `signals` say how far the task brings lanes.
struct GpuTask {
  std::vector<int> launches;  // in order
  int lane;                   // in whose stream
  bool writes = false;        // variables
  std::vector<Wait> waits;    // for signals, of hosts and of other GPUs
  std::vector<int> after;     // tasks of other streams, for whose events the stream waits
  std::vector<int> fed = {};  // of fed_gpus(): for whose copies of feeds it waits, too
  std::unique_ptr<GpuEvent> event = {};  // behind it, if another stream waits for it
  std::vector<int> steps = {};     // lanes whose kernels need the number of the step from here on
  std::vector<Wait> stamps = {};   // the host waits for these
  std::vector<Wait> signals = {};  // threads of other GPUs wait for these
  // Once they are captured: by slot of feeds, whose addresses they have.
  std::array<std::unique_ptr<GpuSegment>, FeedSlots::kCount> segments = {};
};

// All work of a plan for GPUs: launch by launch, or cut into segments.
struct GpuTasks {
  std::vector<GpuTask> tasks;           // in the order of their first launches
  std::vector<std::vector<int>> lists;  // of tasks, by gpus_of()
  std::vector<int> of;                  // the task of each launch; -1 on a host
};

// The watch over a communication lane: how long what was enqueued there has not finished.
struct RankLane {
  std::size_t lane = 0;
  std::atomic<std::int64_t> enqueued{0};  // epoch
  std::int64_t seen = -1;                 // epoch that had been finished at the last look
  std::chrono::steady_clock::time_point since = {};
};

struct GpuLane {
  GpuStream* stream = nullptr;  // null: a CPU's
  Stamp finished;
  RankLane* ranks = nullptr;  // if it communicates
};

// A plan with its memory, its pointers, and the lists that workers go through: all that replace()
// exchanges.
struct LinkedPlan {
  struct WorkerList {
    std::vector<int> tasks;  // none if it enqueues
    Share share;
    int device = -1;  // of the GPU whose work it enqueues; -1: it runs its launches itself
  };

  Plan plan;
  std::chrono::nanoseconds spin = kShortSpin;  // of threads that wait in its runs, and for the next
  int workers = 1;             // that run launches; behind them are those that enqueue
  bool opens = false;          // some launch is cut into chunks, and there are others to take them
  std::vector<Buffer> arenas;  // per device
  std::vector<void*> addresses;                // of all tasks
  std::vector<std::vector<void**>> feed_uses;  // addresses to set, per feed
  std::vector<Task> tasks;                     // in the order of plan.launches
  std::vector<WorkerList> lists;               // per worker, those that enqueue behind the others
  std::vector<Signal> signals;                 // per lane
  std::vector<std::int64_t> bases;             // per lane: launches of earlier runs
  std::int64_t runs = 0;
  std::vector<GpuLane> gpu_lanes;        // per lane
  Buffer counters;                       // of gpu_lanes
  std::vector<RankLane> rank_lanes;      // of the plan's lanes, those that communicate
  std::map<Communicators*, int> joined;  // that the plan uses, as they were when it connected them
  GpuTasks gpu_tasks, gpu_segments;      // the latter empty if nothing is worth a capture
  bool warm = false;                     // has run launch by launch, and not failed since
  // By slot of feeds: gpu_segments can be replayed.
  std::array<bool, FeedSlots::kCount> captured = {};
  std::unique_ptr<ArenaGuard> guard;  // refers to the arenas

  // Launches of a lane in all runs so far, which its signal and stamp count.
  std::int64_t launched(std::size_t lane) const {
    return runs * static_cast<std::int64_t>(plan.lanes[lane].launches.size());
  }
  void forget_captures();
};

}  // namespace belfry
