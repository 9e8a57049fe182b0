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

  // The most devices of a type, e.g. {{"CPU", 4}, {"GPU", 2}}. That many CPU devices are made, as
  // shares of this host; one by default. GPU devices are limited to those that exist; none by
  // default. At most 1,024 in all.
  std::map<std::string, int> device_count = {};
  // GPU devices per physical GPU: gpu:i is on physical GPU i / logical_gpus. Devices of one
  // physical GPU share its memory space; each has its own strand and memory_limit. Without limits
  // the memory is not divided: each device takes what its plans need.
  int logical_gpus = 1;
  // The physical GPUs to use, e.g. "2,0": they become gpu:0 and gpu:1. All by default.
  std::string visible_devices = {};
  // Bytes per device, by full or short name, e.g. {{"cpu:1", 1 << 30}}. A plan that needs more,
  // even with all kept steps dropped, throws OutOfMemory naming the device before it runs.
  std::map<std::string, std::int64_t> memory_limit = {};
  // Falls back to a device that exists and has a kernel, instead of throwing. Warns if a variable
  // gets memory elsewhere than requested.
  bool allow_soft_placement = false;
  // Prints the devices when the session is made (device_mapping()). Prints each node's device when
  // the first plan that holds the node is compiled (placement_lines()); initialisers follow their
  // variables.
  bool log_device_placement = false;
  // Receives the lines of log_device_placement, whole ones. Standard output by default. Must not
  // call the session.
  std::function<void(std::string_view)> placement_sink = {};

  // Plans.

  // Plans, and runs nothing. prepare() compiles, but allocates nothing; run, read, write and
  // CompiledStep::run throw InvalidArgument. GPUs of device_count that do not exist are declared,
  // each physical one with its own memory. They take every op that is not Op::cpu_only.
  bool dry_run = false;
  // The number of shards into which each CPU device cuts the batch fed to it
  // (FeedType::first_sample). Any worker runs any shard. Results depend on the total number of
  // shards of all devices. Devices on GPUs, and steps of LockDuration::kEachVariable, have one.
  int shards_per_device = 1;
  // Fuses several nodes into one pass over memory. It fuses nodes as ops ask (Op::fuse;
  // ops/README.md lists them: norms, activations and their gradients, with nodes around them). It
  // fuses a collective, or a sum over shards, with the optimizer updates that are its only readers.
  // On GPUs it merges several updates into one launch. On hosts it recomputes batch norm with ReLU
  // for gradients, instead of keeping it.
  bool fuse = true;
  // Lets replicas (VariableOptions::copy_of) in one memory space share one storage. They must first
  // appear in the same plan, and all plans must write them alike. Before a plan that writes them
  // differently, or a write() to one of them, each replica gets its own storage. Neither this nor
  // `fuse` changes a bit of any value, but for some products on GPUs (docs/numerics.md).
  bool share_replicas = true;
  // Runs the plain kernel of every op: slow; the oracle in tests. Not on GPUs.
  bool reference_kernels = false;
  // Has libraries use algorithms that give the same bits each time on GPUs, too; others may be
  // faster. On CPUs they always do.
  bool deterministic = false;
  // How many of the steps that run() has compiled are kept, with their memory: the last used ones.
  // A step is identified by its fetches and the shapes of its feeds. A dropped step is compiled
  // again when it is needed, with equal results. A step in use is never dropped; steps of prepare()
  // stay and do not count. At least 1.
  int kept_steps = 64;
  // Variables get no first values before the first restore(), which computes only those that it is
  // not given. Nothing runs before it.
  bool awaits_restore = false;
  // Called with each plan before it gets memory. Tests inspect plans and inject faults here.
  std::function<void(Plan&)> plan_hook = {};

  // Runs.

  // Workers, including the caller of run; at most kMostThreads; 0 for one per usable core.
  int threads = 0;
  // Runs every step on all workers. Otherwise a step with so little work that one worker is faster
  // runs on the caller alone.
  bool all_workers = false;
  // Captures the work of a step for each GPU in its second run. If GPUs are fed, it captures two
  // slots, in the second and the third run. Later runs launch that in a few pieces, instead of
  // launch by launch, except traced runs. Changes no bit.
  bool capture = true;
  // How long threads of a step on GPUs poll for its end, or for work to enqueue, before they sleep,
  // in a run and between two. A thread that sleeps wakes 50 us or more too late. By default 4 ms if
  // this process has more cores than the step has threads (gpu_spin()), else 0.02 ms, as on CPUs. A
  // polling thread yields its core to others that want it. If a step takes longer, threads then
  // poll every 20 us. 0 keeps the cores of a loaded host free.
  std::optional<double> gpu_spin_ms = {};

  // Processes.

  // The processes that train one model together; null: only this one. Devices of rank r are
  // /job:worker/replica:0/task:r/....
  std::shared_ptr<Processes> processes = {};
  // For a dry run without `processes`: plans what the process at this place would run.
  ProcessPlace planned_place = {};
  // How many of the planned processes share a host, rank by rank.
  int planned_per_host = 1;
  // A NCCL collective that has not finished this many seconds after it was enqueued fails the run
  // with a CommError. So does a NCCL call that is in progress for that long. The time includes
  // waits for other work.
  double stall_abort_seconds = 600;
};

// The place of `processes`, else the planned one. Throws InvalidArgument if several processes are
// planned without dry_run, or the rank is not below the size.
ProcessPlace process_place(const SessionOptions& options);

}  // namespace belfry
