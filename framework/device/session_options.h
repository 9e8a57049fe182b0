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

struct SessionOptions {
  // How many devices of a type there are at most, e.g. {{"CPU", 4}, {"GPU", 2}}. So many CPU
  // devices are made, as shares of this host, one by default; of GPUs no more than exist, none by
  // default. At most 1,024 in all.
  std::map<std::string, int> device_count = {};
  // GPU devices per physical GPU: gpu:i is on physical GPU i / logical_gpus. Those of one physical
  // GPU share its memory space; each has a strand and a memory_limit of its own. Without limits its
  // memory is not divided: each takes what its plans need.
  int logical_gpus = 1;
  // Plans, and runs nothing: prepare() compiles without giving anything memory, and run, read,
  // write and CompiledStep::run throw InvalidArgument. GPUs of device_count that do not exist are
  // declared, each physical one with a memory of its own, and take every op that is not
  // Op::cpu_only.
  bool dry_run = false;
  // Falls back to a device that exists and has a kernel instead of throwing. A variable that gets
  // memory elsewhere than it asked for is warned of.
  bool allow_soft_placement = false;
  // Prints the devices when the session is made (device_mapping()), and each node's when the first
  // plan that holds it is compiled (placement_lines()); initialisers follow their variables.
  bool log_device_placement = false;
  // Workers, the caller of run included; 0 for one per usable core.
  int threads = 0;
  // How many steps that run() has compiled - for fetches and shapes of feeds - are kept, with their
  // memory: those used last. One that comes back is compiled again, with equal results. A step in
  // use is never dropped; those of prepare() stay and do not count. At least 1.
  int kept_steps = 64;
  // Every step runs on all of them. Else one with so little work that a worker does it faster alone
  // runs on the caller.
  bool all_workers = false;
  // Into how many shards each CPU device cuts the batch that it is fed with
  // (FeedType::first_sample). Any worker runs any shard. Results depend on the number of shards of
  // all devices together. Devices on GPUs, and steps of LockDuration::kEachVariable, have one.
  int shards_per_device = 1;
  // Bytes per device, by full or short name, e.g. {{"cpu:1", 1 << 30}}. A plan that needs more,
  // even without the steps of kept_steps, throws OutOfMemory naming the device before it runs.
  std::map<std::string, std::int64_t> memory_limit = {};
  // The physical GPUs to use, e.g. "2,0": they become gpu:0 and gpu:1. All by default.
  std::string visible_devices = {};
  // Where log_device_placement prints: whole lines. Standard output by default. May not call the
  // session.
  std::function<void(std::string_view)> placement_sink = {};
  // Makes one pass over memory of several nodes: of those that ops ask for (Op::fuse; ops/README.md
  // lists them: norms, activations and their gradients, with what is around them), and of a
  // collective, or a sum over shards, with the optimizer updates that alone read its results. On
  // GPUs makes one launch of several updates. On hosts makes batch norm with ReLU again for
  // gradients, rather than keep it.
  bool fuse = true;
  // Lets replicas (VariableOptions::copy_of) in one memory space lie in one storage, if the same
  // plan is the first to hold them and all plans write them alike. A plan that does not, or a
  // write() to one of them, gives each its own first. Neither option changes a bit of any value.
  bool share_replicas = true;
  // Captures what a step has for each GPU at its second run (if GPUs are fed, for each of two
  // slots, at its second and third). Later runs give it to the GPU in a few pieces, instead of
  // launch by launch; not in runs that are traced. Changes no bit.
  bool capture = true;
  // How long threads of a step on GPUs look for its end, or for what they shall enqueue, before
  // they sleep, in this run or for the next. A thread that sleeps comes 50 us or more too late. By
  // default 4 ms where this process has more cores than the step has threads (gpu_spin()), else
  // 0.02 ms, as on CPUs. In between other threads get the core if they want it. Longer steps are
  // looked at every 20 us from then on. 0 keeps the cores of a loaded host free.
  std::optional<double> gpu_spin_ms = {};
  // Runs the plain kernel of every op: slow; the oracle in tests. Not on GPUs.
  bool reference_kernels = false;
  // A collective of NCCL that has been enqueued and has not finished for so many seconds fails the
  // run with a CommError. So does a call of NCCL that is in progress for so long. The time includes
  // what the collective waits for.
  double nccl_timeout_s = 600;
  // Libraries compute by algorithms that give the same bits each time, on GPUs, too, where others
  // may be faster. On CPUs all do.
  bool deterministic = false;
  // The processes that train one model together; null: this one alone. Devices of rank r are
  // /job:worker/replica:0/task:r/....
  std::shared_ptr<Processes> processes = {};
  // Of a dry run without `processes`: it plans what this one of so many would run.
  ProcessPlace planned_place = {};
  // How many of these share a host, rank by rank.
  int planned_per_host = 1;
  // Called with each plan before it is given memory: where tests look at plans and inject faults.
  std::function<void(Plan&)> plan_hook = {};
};

// That of `processes`, else the planned one. Throws InvalidArgument for a planned one of several
// without dry_run, or a rank that is not below the size.
ProcessPlace process_place(const SessionOptions& options);

}  // namespace belfry
