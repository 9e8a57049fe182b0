// Runs a graph: owns the devices, the values of variables, and compiled plans.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
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
class OutputWatch;
class Trace;

struct RunOptions {
  // Replaced by a record of what the run did and when (trace.h); empty if the run throws. Recording
  // changes no result.
  Trace* trace = nullptr;
  // Looks at each output of each launch (output_watch.h). It changes no result, but takes long:
  // GPUs wait after each launch.
  OutputWatch* watch = nullptr;
};

// The value to give a variable: dense, of its shape and dtype.
struct VariableBytes {
  Variable variable;
  std::span<const std::byte> bytes;
};

struct PrepareOptions {
  // Steps of kEachVariable may run in parallel, from several threads, each on its caller's thread
  // alone. Such a run first copies the variables that it reads, and computes with the copies. A
  // copy is never torn, but copies of two variables may be of different moments. Others may write
  // between the copy and the run's own write. If the run reads the result of its write (such as a
  // count), it gets what this write left.
  //
  // If a run of kEachVariable fails after it has begun to write, parallel ones continue to their
  // end. Later ones of kEachVariable throw the error of the failed one. A run counts in
  // Session::step() from its beginning. Such steps run only on CPUs: prepare() throws
  // InvalidArgument for work on GPUs.
  LockDuration locks = LockDuration::kWholeRun;
  // By default the step ends by gathering the parts of variables that each process has updated
  // (AssignGathered). With this option the next run gathers them at its beginning, in parallel with
  // the forward pass. If another step or read() needs such a variable before, the session fetches
  // the new values from the other processes. Not for kEachVariable.
  bool gathers_first = false;
  // False: nothing is fused, whatever SessionOptions::fuse says, so each node of the graph has its
  // own launch. The bits are the same.
  bool fuse = true;
};

// The memory that plans need on a device.
struct DeviceUse {
  DeviceSpec device;  // full
  int variables = 0;
  std::int64_t variable_bytes = 0;
  // Bytes of its variables and of the kept steps: their fetches, the memory that each keeps between
  // runs, and one arena, large enough for any of them.
  std::int64_t bytes = 0;
  std::int64_t peak_bytes = 0;  // the most that `bytes` has been so far
  int physical_gpu = -1;        // it has this memory; -1: the host has it
  // A declared device of a dry run: peak_bytes lacks the workspaces of libraries.
  bool declared = false;

  // "<full name>: 4 variables, 1024 bytes, planned peak 4096 bytes".
  std::string str() const;
};

// Feeds that CompiledStep::stage() has sent to the GPUs, in one of the two slots of the step. The
// slot is freed when this object ends, or when a run with it ends. Must end before the session.
class StagedFeeds {
 public:
  StagedFeeds() = default;  // none
  StagedFeeds(StagedFeeds&& other) noexcept
      : staging_(std::exchange(other.staging_, nullptr)), slot_(other.slot_) {}
  StagedFeeds& operator=(StagedFeeds&& other) noexcept;
  ~StagedFeeds() { reset(); }
  explicit operator bool() const { return staging_ != nullptr; }
  // Frees the slot.
  void reset() noexcept;

 private:
  friend class FeedStaging;
  StagedFeeds(FeedStaging& staging, int slot) : staging_(&staging), slot_(slot) {}

  FeedStaging* staging_ = nullptr;
  int slot_ = 0;
};

// A compiled step. It belongs to its Session and dies with it. In a graph of one process stage()
// and run() allocate nothing, except for a trace. With work on GPUs this holds from the fourth run
// on, because the second and third capture CUDA graphs. Only one run of a step is active at a time;
// others wait.
//
// Feeds are in the order given to prepare(). Feeds on GPUs are copied there before the run, through
// pinned memory. Feeds on CPUs are used where they are.
class CompiledStep {
 public:
  // Copies the feeds of GPUs into pinned memory and enqueues the copies to the GPUs, while another
  // thread may run this step. Tensors that are in feed_memory() are copied from there, and shared
  // until the run with them has ended; others are read until it returns. Ignores the feeds of CPUs.
  // Waits while both slots are taken; a thread that holds both waits for ever. Returns an empty
  // object if `stop` is requested meanwhile.
  StagedFeeds stage(std::span<const Tensor> feeds, std::stop_token stop = {});
  // Runs with feeds that this step has staged, even if a run has failed since. Of `feeds` it reads
  // only those of CPUs, until it returns. Throws InvalidArgument for feeds that are not staged. A
  // step without feeds on GPUs takes an empty `staged`.
  void run(StagedFeeds staged, std::span<const Tensor> feeds, RunOptions options = {});
  // Stages all feeds first.
  void run(std::span<const Tensor> feeds = {}, RunOptions options = {});
  // The value of fetch i after a run. The next run overwrites it, and any Tensor copied from it.
  // Session::run returns separate tensors.
  const Tensor& fetched(std::size_t i) const;
  // The plan that it runs now. A new plan replaces it when a write separates replicas in one
  // storage.
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

  // Computes fetches. Compiles a step at first use, for the shapes of the feeds, and keeps it
  // (SessionOptions::kept_steps). Node fetches give an empty tensor. Throws InvalidArgument for
  // feeds of the wrong type. Throws what a kernel throws, after all workers have stopped. If the
  // run had begun to write variables by then, every later run throws until write() has set each of
  // them, or until any restore() (or restore_checkpoint).
  Tensor run(Output fetch, std::span<const FeedValue> feeds = {});
  std::vector<Tensor> run(std::span<const Fetch> fetches, std::span<const FeedValue> feeds = {},
                          RunOptions options = {});
  std::vector<Tensor> run(std::initializer_list<Fetch> fetches,
                          std::initializer_list<FeedValue> feeds = {}, RunOptions options = {});
  // Of a vector: session.run(outputs, {{x, value}}).
  std::vector<Tensor> run(std::span<const Output> fetches, std::initializer_list<FeedValue> feeds,
                          RunOptions options = {});
  std::vector<Tensor> run(std::span<const Fetch> fetches, std::initializer_list<FeedValue> feeds,
                          RunOptions options = {});

  // Compiles without running. The step lives as long as the session.
  CompiledStep& prepare(std::span<const Fetch> fetches, std::span<const FeedType> feeds = {},
                        PrepareOptions options = {});
  CompiledStep& prepare(std::initializer_list<Fetch> fetches,
                        std::initializer_list<FeedType> feeds = {}, PrepareOptions options = {}) {
    return prepare(std::span(fetches.begin(), fetches.size()),
                   std::span(feeds.begin(), feeds.size()), options);
  }

  // Values of variables, between steps. If several processes hold parts of a tensor (VariablePart),
  // read() asks the others for their parts. Any process may do so alone. write() and restore() take
  // the whole and keep the part of this process.
  Tensor read(Variable variable);
  // Calls `look` with the bytes that read() gives, but copies nothing that the host has. `look`
  // must not call the session.
  void look_at(Variable variable, const std::function<void(std::span<const std::byte>)>& look);
  void write(Variable variable, const Tensor& value);
  // False after a failed run that had begun to write variables, until these are restored.
  bool intact() const;
  // Whether the variable shares the storage of another, whose bytes count once.
  bool shares_storage(Variable variable) const;
  // Sets all given variables and the step between two runs, or throws and sets none. Other
  // variables that a failed run may have written get their initial values, so the session is
  // intact.
  void restore(std::span<const VariableBytes> values, std::uint64_t step);
  const Graph& graph() const;

  // The device of an output: full name. It depends on the whole graph (placement/placer.h), not on
  // fetches or feeds. Compiles nothing. The answer may change when the graph grows, except for
  // variables that have memory; prepared steps stay unchanged. Throws InvalidArgument saying why
  // the node cannot be placed.
  DeviceSpec placement(Output output);
  // Why the output is on that device.
  Explanation explain(const Output& output);
  // Full names of all devices.
  std::vector<DeviceSpec> devices() const;
  // The use of each device, in the order of devices().
  std::vector<DeviceUse> device_use() const;
  // The same bytes by purpose (plan/memory_kinds.h), with feeds.
  MemoryReport memory_report() const;
  // Bytes planned per device: DeviceUse::peak_bytes.
  std::map<std::string, std::int64_t> peak_bytes() const;
  // The number of workers requested. No more of them run than there are shards on CPUs.
  int threads() const;

  // The number of runs so far that wrote variables. It is part of the key of random ops.
  std::uint64_t step() const;
  void set_step(std::uint64_t step);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belfry
