// How a session makes its devices, compiles and runs.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "belfry/framework/group/process_place.h"

namespace belfry {

class Processes;
struct Plan;

inline constexpr int kMostThreads = 1024;

struct SessionOptions {
  // Devices.

  // The most devices of a type, e.g. {{"CPU", 4}, {"GPU", 2}}. So many CPU devices are made, as
  // shares of this host; one by default. GPU devices are no more than exist; none by default. At
  // most 1,024 in all.
  std::map<std::string, int> device_count = {};
  // GPU devices per physical GPU: gpu:i is on physical GPU i / logical_gpus. Devices of one
  // physical GPU share its memory space; each has a strand and a memory_limit of its own. Without
  // limits the memory is not divided: each device takes what its plans need.
  int logical_gpus = 1;
  // The physical GPUs to use, e.g. "2,0": they become gpu:0 and gpu:1. All by default.
  std::string visible_devices = {};
  // Bytes per device, by full or short name, e.g. {{"cpu:1", 1 << 30}}. A plan that needs more,
  // even without the steps of kept_steps, throws OutOfMemory naming the device before it runs.
  std::map<std::string, std::int64_t> memory_limit = {};
  // Falls back to a device that exists and has a kernel, instead of throwing. Warns of a variable
  // that gets memory elsewhere than it asked for.
  bool allow_soft_placement = false;
  // Prints the devices when the session is made (device_mapping()). Prints each node's device when
  // the first plan that holds the node is compiled (placement_lines()); initialisers follow their
  // variables.
  bool log_device_placement = false;
  // Takes the lines of log_device_placement, whole ones. Standard output by default. May not call
  // the session.
  std::function<void(std::string_view)> placement_sink = {};

  // Plans.

  // Plans, and runs nothing. prepare() compiles, but allocates nothing; run, read, write and
  // CompiledStep::run throw InvalidArgument. GPUs of device_count that do not exist are declared,
  // each physical one with a memory of its own. They take every op that is not Op::cpu_only.
  bool dry_run = false;
  // The number of shards into which each CPU device cuts the batch that it is fed with
  // (FeedType::first_sample). Any worker runs any shard. Results depend on the number of shards of
  // all devices together. Devices on GPUs, and steps of LockDuration::kEachVariable, have one.
  int shards_per_device = 1;
  // Joins several nodes in one pass over memory. It joins nodes as ops ask (Op::fuse; ops/README.md
  // lists them: norms, activations and their gradients, with nodes around them). It joins a
  // collective, or a sum over shards, with the optimizer updates that alone read its results. On
  // GPUs it makes one launch of several updates. On hosts it computes batch norm with ReLU again
  // for gradients, rather than keep it.
  bool fuse = true;
  // Lets replicas (VariableOptions::copy_of) in one memory space share one storage. The same plan
  // must be the first to hold them, and all plans must write them alike. Before a plan that does
  // not, or a write() to one of them, each gets its own. Neither this nor `fuse` changes a bit of
  // any value.
  bool share_replicas = true;
  // Runs the plain kernel of every op: slow; the oracle in tests. Not on GPUs.
  bool reference_kernels = false;
  // On GPUs, too, libraries use algorithms that give the same bits each time; others may be faster.
  // On CPUs all do.
  bool deterministic = false;
  // How many steps that run() has compiled are kept, with their memory: those used last. A step
  // belongs to its fetches and shapes of feeds. A dropped step that comes back is compiled again,
  // with equal results. A step in use is never dropped; steps of prepare() stay and do not count.
  // At least 1.
  int kept_steps = 64;
  // Called with each plan before it is given memory. Tests look at plans and inject faults here.
  std::function<void(Plan&)> plan_hook = {};

  // Runs.

  // Workers, the caller of run included, at most kMostThreads; 0 for one per usable core.
  int threads = 0;
  // Runs every step on all workers. Else a step with so little work that one worker is faster runs
  // on the caller alone.
  bool all_workers = false;
  // Captures the work of a step for each GPU at its second run. If GPUs are fed, it captures two
  // slots, at the second and the third run. Later runs launch that in a few pieces, instead of
  // launch by launch, except runs that are traced. Changes no bit.
  bool capture = true;
  // How long threads of a step on GPUs look for its end, or for work to enqueue, before they sleep.
  // This holds in a run, and between two. A thread that sleeps comes 50 us or more too late. By
  // default 4 ms if this process has more cores than the step has threads (gpu_spin()), else 0.02
  // ms, as on CPUs. While they look, other threads get the core if they want it. Threads look at
  // longer steps every 20 us from then on. 0 keeps the cores of a loaded host free.
  std::optional<double> gpu_spin_ms = {};

  // Processes.

  // The processes that train one model together; null: this one alone. Devices of rank r are
  // /job:worker/replica:0/task:r/....
  std::shared_ptr<Processes> processes = {};
  // For a dry run without `processes`: plans what the process at this place would run.
  ProcessPlace planned_place = {};
  // How many of the planned processes share a host, rank by rank.
  int planned_per_host = 1;
  // A collective of NCCL that is not finished so many seconds after it was enqueued fails the run
  // with a CommError. So does a call of NCCL that is in progress for so long. The time includes
  // waits for other work.
  double stall_abort_seconds = 600;
};

// The place of `processes`, else the planned one. Throws InvalidArgument if several processes are
// planned without dry_run, or the rank is not below the size.
ProcessPlace process_place(const SessionOptions& options);

}  // namespace belfry
