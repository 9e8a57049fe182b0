// A plan with its memory, its pointers, and its commands. Immutable once made, except for the
// addresses of feeds, and those of the arenas if they move.
#pragma once
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/arena_guard.h"
#include "belfry/framework/run/runtime.h"

namespace belfry {

// A launch, or one shard of it, with its pointers.
struct LinkedLaunch {
  const Launch* launch;
  const KernelRun* run;  // on CPUs
  WorkRange range;
  std::span<void*const> inputs, outputs;
  std::byte* workspace = nullptr;
  std::int64_t parts = 1;
  bool writes = false;  // it writes variables
  std::int64_t first_row = 0;

  // Of the whole launch, or of a part, which has its own share of the workspace.
  KernelPointers pointers(WorkRange of, std::uint64_t step) const {
    std::byte* own = workspace;
    if (parts > 1 && workspace)
      own += (of.begin - range.begin) / launch->part_size * (launch->workspace_bytes / parts);
    return {inputs, outputs, own, of, step, first_row};
  }
};

struct LinkedPlan {
  // The commands of a CPU's strand for one shard. One worker at a time follows them. A single
  // worker has all strands in one route, if each device has one shard.
  struct Route {
    std::vector<Command> commands;
    int shard = 0;
    int worker = 0;  // tries it before other workers do
  };
  // The commands of all strands of a GPU, which one thread follows.
  struct GpuProgram {
    std::vector<Command> commands;
    std::vector<Command> in_segments;  // empty as Commands::in_segments
    int device = -1;                   // a device of that GPU
  };

  // `fetched`: the memory that fetches are copied to.
  LinkedPlan(std::shared_ptr<const Plan> compiled, Runtime& runtime,
             std::span<void* const> fetched);

  // Call it before a run. From then on the plan uses the session's arenas at their present
  // addresses. Returns whether they have moved since the last call.
  bool move_to(const SharedArenas& shared);
  // Sets the address at which kernels read the feed.
  void set_feed(std::size_t feed, std::byte* memory) {
    for (const FeedUse& use : feed_uses[feed]) *use.address = memory + use.offset;
  }
  const LinkedLaunch& launch(LaunchIndex index, int shard = 0) const {
    return linked_launches[first_linked[index] + at(shard)];
  }
  int threads() const { return workers + static_cast<int>(programs.size()); }
  const GpuProgram& program(int thread) const { return programs[at(thread - workers)]; }
  const Node& node_of(LaunchIndex launch) const {
    return *plan->node(plan->launches[launch].node).node;
  }

  std::shared_ptr<const Plan> plan;
  // Per device: the start of the arena. It is the session's (SharedArenas), or this plan's own if
  // its runs are parallel to others.
  std::vector<std::byte*> arenas;
  std::vector<MemoryBlock> kept;              // per device
  std::vector<LinkedLaunch> linked_launches;  // shard by shard of each launch
  Indexed<Launch, std::size_t> first_linked;
  int workers = 1;  // threads that run launches; the threads that enqueue follow them
  std::vector<Route> routes;
  // Of the thread that talks to other processes, by strand.
  std::vector<std::vector<Command>> exchanges;
  std::vector<GpuProgram> programs;            // per thread that enqueues
  std::chrono::nanoseconds spin = kShortSpin;  // of threads that wait in its runs, or for the next
  std::unique_ptr<ArenaGuard> guard;           // refers to the arenas

 private:
  void allocate(Runtime& runtime);
  void fill_constants(const Runtime& runtime);
  void link_launches(const Runtime& runtime, std::span<void* const> fetched);
  void deal_routes(const Runtime& runtime);
  void make_routes();
  void make_programs();
  void link_launch(LaunchIndex launch, int shard, const Runtime& runtime,
                   std::span<void* const> fetched);
  void* address(BufferIndex buffer, int shard, const Runtime& runtime,
                std::span<void* const> fetched) const;

  // A place that holds the address of a feed, or of a shard's rows in it.
  struct FeedUse {
    void** address;
    std::int64_t offset;
  };
  std::vector<MemoryBlock> own_arenas;
  std::vector<void*> addresses;  // of all linked launches
  std::vector<std::vector<FeedUse>> feed_uses;
};

}  // namespace belfry
