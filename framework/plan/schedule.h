// The launches of a plan, in one global order, and the strands that run them.
#pragma once
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "belfry/framework/base/index.h"
#include "belfry/framework/device/gpu_backend.h"
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/plan/clocks.h"
#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

class RankLaunch;
struct Launch;
struct Strand;
using LaunchIndex = Index<Launch>;
using StrandIndex = Index<Strand>;

// A strand waits until another one has run its launch number `position`.
struct Wait {
  StrandIndex strand;
  int position;
  auto operator<=>(const Wait&) const = default;
};

// A launch is cut into at most this many parts.
inline constexpr std::int64_t kMostParts = 1 << 20;

// A kernel call of a node, at its place in the global order. A node has one; a large sum over
// several GPUs has one on each of them. It runs once, or once per shard or part.
struct Launch {
  NodeIndex node;
  StrandIndex strand;
  int position;             // in its strand
  WorkRange range;          // of the whole work, of a shard, or of this GPU's share
  std::vector<Wait> waits;  // for other strands, without those that other waits imply
  Clocks::Clock clock;      // how far the other strands are, at least, when the launch starts
  std::int64_t part_size;   // units that a worker takes at a time; range.size() or more: all
  KernelRun run;            // on strands of CPUs
  GpuRun enqueue;           // on strands of GPUs
  std::shared_ptr<RankLaunch> rank = {};  // `enqueue` calls it for one rank of a collective
  bool capturable = true;                 // for strands of GPUs: a segment may contain it
  std::int64_t workspace_bytes = 0;       // for each shard
  // Shards differ by at most one sample. Shards with the extra sample run these, if there are any.
  KernelRun run_larger = {};
  WorkRange range_larger = {};

  std::int64_t parts() const {
    return range.size() > part_size ? (range.size() + part_size - 1) / part_size : 1;
  }
};

// Launches that run in order. On a GPU they are those of a stream: for kernels, or for parts
// of ranks and sums over several GPUs. On a CPU device they are those that run once, or those that
// run once per shard. A device's messages to other processes have their own strands, which may also
// add what has arrived. One thread at a time runs the launches of a strand, or of a shard in it.
// Shards do not wait for each other. Launch `position` of a strand has run when all shards have run
// it.
struct Strand {
  int device;
  std::vector<LaunchIndex> launches;
  int gpu = -1;               // the physical GPU; -1: a CPU, or a declared GPU
  bool communicates = false;  // only parts of ranks, sums over GPUs, or messages to processes
  int shards = 1;

  int last() const { return static_cast<int>(launches.size()) - 1; }  // position
};

struct ExecutionSchedule {
  Indexed<Strand> strands;
  Indexed<Launch> launches;  // in the global order, which is topological
  Clocks clocks;

  // How many launches of a strand have run when launch l starts.
  int have_run(StrandIndex strand, LaunchIndex l) const {
    const Launch& launch = launches[l];
    return strand == launch.strand ? launch.position : clocks.count(launch.clock, strand);
  }
  // Whether launch a has run when launch b starts.
  bool happens_before(LaunchIndex a, LaunchIndex b) const {
    return have_run(launches[a].strand, b) > launches[a].position;
  }
  bool on_gpu(StrandIndex strand) const { return strands[strand].gpu >= 0; }
  // Whether the strand has messages between processes.
  bool exchanges(StrandIndex strand) const {
    return !on_gpu(strand) && strands[strand].communicates;
  }
  // The launch that `wait` waits for.
  LaunchIndex awaited(const Wait& wait) const {
    return strands[wait.strand].launches[static_cast<std::size_t>(wait.position)];
  }
};

// The physical GPUs that a plan has strands of, in order.
std::vector<int> gpus_of(const ExecutionSchedule& schedule);
// How many of `most` workers a plan has work for. All of them, if idle workers can take parts of
// other workers' launches. Otherwise at most one per strand of a CPU, or per shard of it. At least
// one.
int workers_for(const ExecutionSchedule& schedule, int most);
// The thread that looks first at each shard of each strand. Workers come first: each has
// consecutive shards of CPUs, in the numeric order of their devices. The worker of the first shard
// also looks first at launches that run once. Thread `workers` + i enqueues for the strands of the
// i-th GPU of gpus_of().
Indexed<Strand, std::vector<int>> deal_shards(const ExecutionSchedule& schedule, int workers);
// The thread of the first shard of each strand.
Indexed<Strand, int> deal_strands(const ExecutionSchedule& schedule, int workers);

}  // namespace belfry
