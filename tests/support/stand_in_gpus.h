// GPUs made of memory and threads of the host, for tests of all that lies above GpuBackend.
//
// * Memory of a GPU has addresses at which the host may neither read nor write. Streams reach the
//   memory behind them, of their own GPU and its peers. They refuse host memory that is not pinned.
// * Each stream is a thread that does enqueued work in order; kernels are Op::cpu's.
// * Streams refuse calls that CUDA would refuse, and races. Such are work in a stream of a GPU that
//   the thread does not use, two threads that enqueue in one stream at once, and workspaces that do
//   not begin at 256 bytes.
// * They refuse in captures what CUDA refuses, with its number. Such are waits of a captured stream
//   for other work, stamps, questions, and streams that are not waited for at the end. So are
//   allocations and waits of the thread that captures. Captured work is done in any order that it
//   allows.
// * Work in two streams that uses the same memory is a race, unless one is behind the other or has
//   been done by then. So is a stamp that is not behind its stream's work in a segment. A host that
//   uses such memory races, too, if the test tells of it (host_uses).
// * A kernel that throws InvalidArgument has refused its input. The next stamp of its stream tells
//   that, and the GPU goes on. Any other exception fails the GPU.
// * Every call is counted.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "belfry/framework/device/gpus.h"
#include "belfry/framework/graph/kernel.h"
#include "belfry/tests/framework/device/fake_gpus.h"
#include "belfry/tests/support/stand_in_capture.h"

namespace belfry::test {

struct NcclFaults;
class RankMeetings;

class StandInGpus final : public FakeGpus {
 public:
  struct Calls {
    int allocations = 0, copies = 0, streams = 0, events = 0, timers = 0, prepared = 0;
    int enqueued = 0, copied = 0, records = 0, waits = 0, stamps = 0, drains = 0;
    int all_reduces = 0;                  // by one rank
    int exchanges = 0, rank_gathers = 0;  // by one rank, with other processes
    int captures = 0, replays = 0;
    int gathered = 0;                    // copies of several tensors
    int checks = 0;                      // whether a GPU has failed
    int deterministic = 0, fastest = 0;  // prepared kernels that were asked for so
  };

  // `peers`: each GPU reaches the memory of every other.
  explicit StandInGpus(int count, bool peers = true);
  ~StandInGpus() override;

  Calls calls() const;
  // Bytes in use: of a GPU, or pinned ones for -1.
  std::int64_t in_use(int gpu) const;
  // From now on, there is no kernel for the op of this name.
  void lack_kernel(std::string op) { lacking_ = std::move(op); }
  // From now on, no kernel takes padded rows.
  void refuse_pitches() { takes_pitches_ = false; }
  // The NCCL that it stands in for; 2.28.9 by default.
  void set_nccl(NcclInfo info) { nccl_ = std::move(info); }
  // The faults of the next calls of NCCL; see stand_in_communicators.h.
  NcclFaults& nccl_faults() const { return *nccl_faults_; }
  // How many waits streams of a GPU have been asked for so far.
  int waits_of(int gpu) const;
  // Loses the wait of this number among them. No GPU works until a little after it, so work that
  // does not wait comes too early.
  void lose_wait(int gpu, int number);
  // Each copy in a stream takes so long from now on.
  void slow_copies(std::chrono::milliseconds time) { copy_time_ = time; }
  // Makes a GPU fail: it does none of its further work.
  void fail(int gpu, const std::string& what) const;
  // Makes all GPUs work again.
  void mend() const;

  // Each work takes so much longer from now on.
  void slow_down(std::chrono::microseconds by) { slower_ = by; }
  // A host uses memory now. Throws DeviceError if a GPU has unfinished work that must not run
  // beside this.
  void host_uses(const std::string& served, const std::vector<Access>& accesses) const;

  // Enqueues other work in one of its streams.
  static void enqueue(GpuStream& stream, std::function<void()> what);

  bool peer_access(int from, int to) const override { return from != to && peers_; }
  void* allocate(int gpu, std::size_t bytes) const override;
  void deallocate(int gpu, void* memory) const noexcept override;
  void* allocate_pinned(std::size_t bytes) const override;
  void deallocate_pinned(void* memory) const noexcept override;
  void copy(void* to, const void* from, std::size_t bytes) const override;
  std::unique_ptr<GpuStream> make_stream(int gpu, std::span<const int> peers,
                                         bool is_urgent = false) const override;
  std::unique_ptr<GpuEvent> make_event(int gpu) const override;
  std::unique_ptr<GpuEvent> make_timer(int gpu) const override;
  std::chrono::nanoseconds elapsed(const GpuEvent& from, const GpuEvent& to) const override;
  void use(int gpu) const override;
  NcclInfo nccl() const override { return nccl_; }
  std::string communicator_id() const override;
  std::unique_ptr<GpuCommunicators> make_communicators(
      std::span<const int> gpus, std::chrono::duration<double> limit, const RankWorld& world,
      const std::atomic<bool>& failed) const override;
  GpuRun prepare(int gpu, KernelPlan& plan, bool deterministic,
                 std::span<const std::int64_t> pitches = {}) const override;
  bool takes_pitches(const Op& op) const override;
  GpuRun prepare_fused(int gpu, const PlanGraph& plan, const PlanNode& node) const override;

 private:
  friend class StandInStream;
  friend class StandInCommunicators;
  struct Counters {
    std::atomic<int> allocations, copies, streams, events, timers, prepared;
    std::atomic<int> enqueued, copied, records, waits, stamps, drains, all_reduces, exchanges,
        rank_gathers, captures, replays, gathered, checks, deterministic, fastest;
  };
  struct Space;
  struct InFlight;

  // The memory behind an address for a stream of `gpu`, or for -1, which reaches everything. Throws
  // DeviceError for memory that it does not reach.
  std::byte* behind(int gpu, const void* address) const;
  // The memory that a kernel touches, in bytes by input and output; the first inputs are written.
  struct Memory {
    std::vector<std::int64_t> inputs = {}, outputs = {};
    std::size_t writes = 0, workspace = 0;
    bool step = false;  // reads the number of the step
    // Of a collective, whose launch touches its range of each participant's tensors alone.
    std::size_t participants = 0, element = 0;
    std::vector<Access> accesses(std::span<std::byte* const> at_inputs,
                                 std::span<std::byte* const> at_outputs, WorkRange range) const;
  };
  GpuRun in_stream(int gpu, KernelRun kernel, Memory memory) const;
  std::string failure(int gpu) const;  // "" if it works
  void require_used(int gpu) const;    // this thread must use it
  static void refuse_capture(const char* call);
  bool loses_wait(int gpu) const;  // whether the next wait is lost
  void release() const;            // lets GPUs go on
  void idle() const;               // waits while GPUs are held
  // Throws DeviceError if other work is in flight that must not run beside this. The result becomes
  // true when the work is done. `clock` ends with the work.
  std::shared_ptr<std::atomic<bool>> set_out(int stream, const Clock& clock,
                                             const Work& work) const;

  bool peers_;
  std::chrono::milliseconds copy_time_{0};
  std::string lacking_;
  bool takes_pitches_ = true;
  NcclInfo nccl_{.version = 22809};
  std::unique_ptr<NcclFaults> nccl_faults_;
  std::unique_ptr<Counters> counters_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Space>> spaces_;
  mutable std::map<std::uintptr_t, std::size_t> pinned_;
  mutable std::vector<std::string> failures_;  // by GPU
  mutable std::vector<InFlight> in_flight_;
  mutable std::map<int, int> waits_;  // by GPU
  std::map<int, int> lost_wait_;
  mutable int ids_ = 0;                                             // of communicators, given out
  mutable std::map<std::string, std::weak_ptr<RankMeetings>> met_;  // by id of a communicator
  mutable std::mutex idling_;
  mutable std::condition_variable released_;
  mutable bool held_ = false;
  std::atomic<std::chrono::microseconds> slower_{std::chrono::microseconds(0)};
  mutable std::chrono::steady_clock::time_point idle_until_;
};

// While it lives, these are the GPUs of this process.
class UseGpus {
 public:
  explicit UseGpus(const GpuBackend& backend) : gpus_(backend) { set_gpus(&gpus_); }
  ~UseGpus() { set_gpus(nullptr); }
  UseGpus(const UseGpus&) = delete;
  UseGpus& operator=(const UseGpus&) = delete;

 private:
  Gpus gpus_;
};

}  // namespace belfry::test
