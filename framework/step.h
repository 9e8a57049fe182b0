// The run-time side of a plan: its memory, its pointers, and the lists that workers go through.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <span>
#include <vector>

#include "belfry/framework/arena_guard.h"
#include "belfry/framework/gpu_streams.h"
#include "belfry/framework/plan.h"
#include "belfry/framework/rank_launch.h"
#include "belfry/framework/recording.h"
#include "belfry/framework/run_lock.h"
#include "belfry/framework/segments.h"
#include "belfry/framework/session.h"
#include "belfry/framework/staging.h"
#include "belfry/framework/workers.h"

namespace belfry {

// A step whose last run has left something to be done (PlanNode::late).
class Pending {
 public:
  // Does it, in the calling thread. If that throws, the variables which it writes are suspects.
  virtual void flush() = 0;

 protected:
  ~Pending() = default;
};

struct LinkedPlan;

// What steps borrow from their session.
struct Runner {
  const std::vector<std::unique_ptr<Device>>& devices;
  WorkerPool& pool;
  std::function<void*(const Node&)> variable_memory;
  RunLock mutex;                        // shared by runs of Locks::kEachVariable
  std::atomic<std::uint64_t> step = 0;  // runs that wrote variables
  // Variables that a failed run may have written, until each is restored; and its error.
  std::set<const Node*> suspects;
  std::exception_ptr cause;
  std::mutex failures;  // over these two, between runs that share `mutex`
  // Of each variable's memory. Steps of Locks::kEachVariable take them in the order of the map.
  std::map<const void*, std::mutex> variable_locks;
  bool dry = false;          // nothing has memory, and nothing runs
  bool all_workers = false;  // even for little work
  bool capture = true;       // what GPUs are given, from the second run of a step on
  int workers = 1;           // of the pool; its others enqueue, one for each physical GPU
  std::unique_ptr<GpuStreams> gpus = {};  // if GPUs are driven
  std::set<LinkedPlan*> captured = {};    // of steps that live: those with ranks
  std::chrono::duration<double> nccl_timeout{600};
  Pending* pending = nullptr;  // null if nothing is; by who has `mutex` alone
};

// Between two runs, with nothing pending: whoever looks at variables from outside holds this.
std::unique_lock<RunLock> between_runs(Runner& runner);
// Beside runs that share the lock, with nothing pending.
std::shared_lock<RunLock> beside_runs(Runner& runner);

// Throws InvalidArgument naming a device of the plan, a declared one if there is any.
[[noreturn]] void refuse_dry_run(const Plan& plan,
                                 const std::vector<std::unique_ptr<Device>>& devices);

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

// A launch that its worker has opened to others, chunk by chunk. The owner takes them from the
// front, the others from the back: so a worker finds in its cache what it wrote in the run before.
// A ticket is the number of the opening and how many were taken from either end; chunks are taken
// by compare-and-swap, so a late worker never takes one of another opening.
class Ticket {
 public:
  enum class End : std::uint8_t { kFront, kBack };

  Ticket() = default;  // nothing is open
  // Of the next opening.
  Ticket opened() const { return Ticket(((bits_ >> 2 * kBits) + 1) << 2 * kBits); }
  Ticket closed() const { return Ticket(bits_ | kNone); }
  Ticket taken(End end) const {
    return Ticket(bits_ + (end == End::kFront ? 1 : std::uint64_t{1} << kBits));
  }
  bool open(std::int64_t parts) const { return front() + back() < parts; }
  // The chunk that is taken next.
  std::int64_t next(End end, std::int64_t parts) const {
    return end == End::kFront ? front() : parts - 1 - back();
  }

 private:
  static constexpr int kBits = 22;
  static constexpr std::uint64_t kMost = (std::uint64_t{1} << kBits) - 1;
  static constexpr std::uint64_t kNone = kMost << kBits | kMost;

  explicit Ticket(std::uint64_t bits) : bits_(bits) {}
  std::int64_t front() const { return static_cast<std::int64_t>(bits_ & kMost); }
  std::int64_t back() const { return static_cast<std::int64_t>(bits_ >> kBits & kMost); }

  std::uint64_t bits_ = kNone;
};

struct alignas(64) Share {
  std::atomic<Ticket> ticket{Ticket()};
  std::atomic<const Task*> task{nullptr};
  std::atomic<std::int64_t> done{0};
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
  int workers = 1;             // that run launches; behind them are those that enqueue
  bool opens = false;          // some launch is cut into chunks, and there are others to take them
  std::vector<Buffer> arenas;  // per device
  std::vector<void*> addresses;                // of all tasks
  std::vector<std::vector<void**>> feed_uses;  // addresses to set, per feed
  std::vector<Task> tasks;                     // in the order of plan.launches
  std::vector<int> late;                       // tasks
  std::vector<char> late_done;      // by task: since the run before this one; each by its worker
  std::vector<WorkerList> lists;    // per worker, those that enqueue behind the others
  std::vector<Signal> signals;      // per lane
  std::vector<std::int64_t> bases;  // per lane: launches of earlier runs
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

struct Step::State final : LinkedPlan, Pending {
  State(Plan compiled, Runner& owner);

  // Becomes `other`, another plan of the same fetches and feeds, and keeps the values that were
  // fetched; `other` is of no use then. Call it with runner.mutex.
  void replace(State& other);

  // Makes the communicators that the plan needs, and all connections that its collectives use; a
  // run does so, too, if they are not there any more. Waits for other runs.
  void connect();

  StagedFeeds stage(std::span<const Tensor> feeds, std::stop_token stop = {});
  // Copies the fetches to `results` before another thread can run the step again.
  void run(StagedFeeds staged, std::span<const Tensor> feeds, RunOptions options = {},
           std::vector<Tensor>* results = nullptr);

  void flush() override;

  Runner& runner;
  std::vector<Tensor> fetched;
  // Computes first values of variables: they do not depend on the step at which they are needed.
  bool initial = false;

 private:
  bool shares() const { return plan.locks == Locks::kEachVariable; }
  WorkerPool& pool() { return shares() ? alone_ : runner.pool; }

  void execute(const StagedFeeds& staged, std::span<const Tensor> feeds, RunOptions options);
  void check_intact();
  void allocate();
  void link();
  void link_locks();
  void link_gpus();
  void link_gpu_tasks(std::span<const int> worker_of);
  GpuTasks make_gpu_tasks(const std::vector<Segment>& segments);
  void link_wait(std::size_t t, const Wait& wait, std::span<const int> worker_of);
  void share_out();
  void* address(int buffer);
  void fill_constants();
  void set_feeds(std::span<const Tensor> feeds);
  void start_recording();
  void run_list(int worker);
  bool run_task(std::size_t t, int worker);
  void enqueue_list(int worker);
  bool enqueue_task(const GpuTask& task);
  void enqueue_launch(int launch, GpuStream& stream);
  // Of the plan's GPUs, in their threads. Throws as a run does.
  void capture();
  void capture_list(int worker);
  void capture_segment(GpuTask& task);
  // Until a lane of a GPU has finished so many launches; false if a worker failed. Helps others as
  // `worker`, or nobody if that is -1.
  bool await_stamp(std::size_t lane, std::int64_t epoch, int worker);
  void drain_gpus();
  void link_ranks();
  void join_ranks();
  bool connected() const;
  void make_connections();
  void connect_list(int worker);
  // Throws CommError for what NCCL has failed with, or not done in time.
  void watch_ranks();
  std::string unfinished() const;
  void abort_ranks() noexcept;
  void begin_late(bool traced);
  void run_late(std::size_t t);
  void leave_late(bool traced);
  void lose_late();
  void settle_late() noexcept;
  void suspect(const PlanNode& writer);
  void run_shared(const Task& task, int worker);
  // A chunk of another worker is noted in `helped`, if that is given.
  bool take_chunk(Share& share, Ticket::End end, std::vector<Recording::Chunk>* helped = nullptr);
  bool help(int worker);
  void help_others(int worker);
  void call(const Task& task, Range range) const;
  void hold_variables(const Task& task);
  void release_variables();
  void fail() noexcept;
  void poison();
  [[noreturn]] void recover();

  Staging staging_;
  int slot_ = 0;  // of the current run's feeds
  std::function<void(int)> work_, capture_;
  bool replaying_ = false;  // in the current run
  bool does_late_ = false;  // in the current run: what the one before has left
  std::atomic<bool> late_failed_{false};
  std::mutex watching_;                 // over rank_lanes, but for `enqueued`
  std::atomic<int> busy_{0};            // workers that go through their lists
  std::optional<Recording> recording_;  // of the current run, if it is traced
  std::uint64_t step_ = 0;              // of the current run
  std::mutex running_;                  // one run of this step at a time
  WorkerPool alone_{1};                 // the caller of run()
  const Task* holder_ = nullptr;        // whose locks are held
  std::atomic<bool> failed_{false};
  std::atomic<bool> has_written_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace belfry
