// Runs a graph: owns the devices, the values of variables, and compiled plans.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/device/session_options.h"
#include "belfry/framework/plan/request.h"

namespace belfry {

struct Explanation;
struct MemoryReport;
struct Plan;
class FeedStaging;
class Trace;

struct RunOptions {
  // Replaced by what the run did and when (trace.h); empty if the run throws. Recording changes no
  // result.
  Trace* trace = nullptr;
};

// What a variable shall hold: dense, of its shape and dtype.
struct VariableBytes {
  Variable variable;
  std::span<const std::byte> bytes;
};

struct PrepareOptions {
  // Steps of kEachVariable may run beside each other, from several threads; each runs on the thread
  // that called run() alone. Such a run begins by copying what it reads of variables and computes
  // with the copies. A copy is never torn, but those of two variables may be of different moments.
  // Between its reading and its writing others may write. What a write gives to its own run (such
  // as the number that it has counted to) is what this write left.
  //
  // If a run of kEachVariable fails after it has begun to write, those beside it go on to their
  // end. Later ones of kEachVariable throw the error of the one that failed. It counts in
  // Session::step() from its beginning. Such steps run on CPUs alone: prepare() throws
  // InvalidArgument for those with work on GPUs.
  LockDuration locks = LockDuration::kWholeRun;
  // The last act of the step is to gather what each process has updated of variables
  // (AssignGathered). It then comes at the beginning of the next run, beside the forward pass.
  // Until then the session gets from the other processes what else reads these variables, other
  // steps and read() alike. Not for kEachVariable.
  bool gathers_first = false;
};

// What plans need of a device.
struct DeviceUse {
  DeviceSpec device;  // full
  int variables = 0;
  std::int64_t variable_bytes = 0;
  // Of its variables, and of the steps that are kept: their fetches, what each keeps between runs,
  // and an arena that is large enough for each of them.
  std::int64_t bytes = 0;
  std::int64_t peak_bytes = 0;  // the most that these have been so far
  int physical_gpu = -1;        // whose memory that is; -1: the host's
  // Of a dry run's declared device: peak_bytes lacks the workspaces of libraries.
  bool declared = false;

  // "<full name>: 4 variables, 1024 bytes, planned peak 4096 bytes".
  std::string str() const;
};

// What CompiledStep::stage() has sent to the GPUs, in one of the two slots of its step. The slot is
// free again when this object ends, or when the run that takes it ends. It must end before the
// session.
class StagedFeeds {
 public:
  StagedFeeds() = default;  // none
  StagedFeeds(StagedFeeds&& other) noexcept
      : staging_(std::exchange(other.staging_, nullptr)), slot_(other.slot_) {}
  StagedFeeds& operator=(StagedFeeds&& other) noexcept;
  ~StagedFeeds() { reset(); }
  explicit operator bool() const { return staging_ != nullptr; }
  // Gives the slot back.
  void reset() noexcept;

 private:
  friend class FeedStaging;
  StagedFeeds(FeedStaging& staging, int slot) : staging_(&staging), slot_(slot) {}

  FeedStaging* staging_ = nullptr;
  int slot_ = 0;
};

// A compiled step: stage() and run() of one process allocate nothing, but for a trace. With work on
// GPUs that is so from the fourth run on: the second and third capture CUDA graphs. Belongs to its
// Session and dies with it. One run of it at a time; others wait.
//
// Feeds are in the order given to prepare(). Those placed on GPUs are copied there beforehand,
// through pinned memory; those on CPUs are used where they are.
class CompiledStep {
 public:
  // Copies the feeds of GPUs into pinned memory and enqueues the copies to the GPUs, while another
  // thread may run this step. Reads the feeds until it returns, and those of CPUs not at all. Waits
  // while both slots are taken; a thread that holds both waits for ever. If `stop` is requested
  // meanwhile, it returns none.
  StagedFeeds stage(std::span<const Tensor> feeds, std::stop_token stop = {});
  // With what this step has staged, even if a run has failed since. Of `feeds` it reads those of
  // CPUs alone, until it returns. Throws InvalidArgument for what has not been staged. A step
  // without feeds on GPUs runs with none.
  void run(StagedFeeds staged, std::span<const Tensor> feeds, RunOptions options = {});
  // Stages all feeds first.
  void run(std::span<const Tensor> feeds = {}, RunOptions options = {});
  // The value of fetch i after a run. The next run overwrites it, and copies of it with it;
  // Session::run returns tensors of their own.
  const Tensor& fetched(std::size_t i) const;
  // The plan that it runs now. A write to one of several replicas in one storage replaces it.
  std::shared_ptr<const Plan> plan() const;

  CompiledStep(const CompiledStep&) = delete;
  CompiledStep& operator=(const CompiledStep&) = delete;
  ~CompiledStep();

 private:
  friend class Session;
  struct State;
  explicit CompiledStep(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Session {
 public:
  explicit Session(const Graph& graph, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Computes fetches; compiles them at first use for the shapes of the feeds, and keeps the step
  // (SessionOptions::kept_steps). Node fetches give an empty tensor. Throws InvalidArgument for
  // feeds of the wrong type, and whatever a kernel throws, after all workers have stopped; if a
  // variable had been written by then, every later run throws until write() has set each variable
  // that it may have written, or restore() (restore_checkpoint too) any.
  Tensor run(Output fetch, std::span<const FeedValue> feeds = {});
  std::vector<Tensor> run(std::span<const Fetch> fetches, std::span<const FeedValue> feeds = {},
                          RunOptions options = {});
  std::vector<Tensor> run(std::initializer_list<Fetch> fetches,
                          std::initializer_list<FeedValue> feeds = {}, RunOptions options = {});

  // Compiles without running. The step lives as long as the session.
  CompiledStep& prepare(std::span<const Fetch> fetches, std::span<const FeedType> feeds = {},
                        PrepareOptions options = {});
  CompiledStep& prepare(std::initializer_list<Fetch> fetches,
                        std::initializer_list<FeedType> feeds = {}, PrepareOptions options = {}) {
    return prepare(std::span(fetches.begin(), fetches.size()),
                   std::span(feeds.begin(), feeds.size()), options);
  }

  // Values of variables, between steps. Where several processes hold parts of a tensor
  // (VariablePart), read() asks the others for theirs, which any process may do alone. write() and
  // restore() take the whole and keep the part of this process.
  Tensor read(Variable variable);
  void write(Variable variable, const Tensor& value);
  // False after a run that failed when it had begun to write variables, until they are restored.
  bool intact() const;
  // The variable lies in the storage of another, whose bytes count once.
  bool shares_storage(Variable variable) const;
  // Sets variables and the step, all between two runs, or throws and sets none. Others that a
  // failed run may have written start again from their first values: the session is intact.
  void restore(std::span<const VariableBytes> values, std::uint64_t step);
  const Graph& graph() const;

  // The device of an output: full name. It follows from the whole graph (placement/placer.h),
  // whatever is fetched or fed, and compiles nothing. When the graph has grown the answer may be
  // another one, but not for variables that have memory; steps stay as they were prepared. Throws
  // InvalidArgument saying why the node cannot be placed.
  DeviceSpec placement(Output output);
  // Why it is there.
  Explanation explain(const Output& output);
  // Full names of all devices.
  std::vector<DeviceSpec> devices() const;
  // Of each device, in the same order.
  std::vector<DeviceUse> device_use() const;
  // The same bytes by what they are for (plan/memory_kinds.h), with feeds.
  MemoryReport memory_report() const;
  // Bytes planned per device: DeviceUse::peak_bytes.
  std::map<std::string, std::int64_t> peak_bytes() const;
  // Workers that were asked for; no more of them run than there are shards on CPUs.
  int threads() const;

  // Runs that wrote variables so far: random ops are keyed by it.
  std::uint64_t step() const;
  void set_step(std::uint64_t step);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belfry
