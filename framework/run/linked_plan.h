// A plan with its memory, its pointers, and its commands. Nothing of it changes once it is made,
// but for the addresses of feeds.
#pragma once
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/arena_guard.h"
#include "belfry/framework/run/runtime.h"

namespace belfry {

// A launch with its pointers.
struct LinkedLaunch {
  const Launch* launch;
  std::span<void*const> inputs, outputs;
  std::byte* workspace = nullptr;
  std::int64_t parts = 1;

  Pointers pointers(Range range, std::uint64_t step) const {
    return {inputs, outputs, workspace, range, step};
  }
};

struct LinkedPlan {
  // What one worker at a time does: the commands of a strand of a CPU. A single worker has all
  // strands in one.
  struct Queue {
    std::vector<Command> commands;
    int worker = 0;  // that takes it before others
  };
  // What the thread of a GPU does: the commands of all its strands.
  struct Program {
    std::vector<Command> commands;
    std::vector<Command> in_segments;  // empty as Commands::in_segments
    int device = -1;                   // a device of that GPU
  };

  // `fetched`: the tensors that fetches are copied to.
  LinkedPlan(std::shared_ptr<const Plan> compiled, Runtime& runtime, std::span<Tensor> fetched);

  // Kernels that read the feed find it there.
  void set_feed(std::size_t feed, void* memory) {
    for (void** address : feed_uses[feed]) *address = memory;
  }
  int threads() const { return workers + static_cast<int>(programs.size()); }
  const Program& program(int thread) const { return programs[at(thread - workers)]; }
  const Node& node_of(LaunchIndex launch) const {
    return *plan->node(plan->launches[launch].node).node;
  }

  std::shared_ptr<const Plan> plan;
  std::vector<Buffer> arenas;  // per device
  Indexed<Launch, LinkedLaunch> launches;
  int workers = 1;  // that run launches; behind them are the threads that enqueue
  std::vector<Queue> queues;
  std::vector<Program> programs;  // per thread that enqueues
  std::chrono::nanoseconds spin = kShortSpin;  // of threads that wait in its runs, and for the next
  std::unique_ptr<ArenaGuard> guard;           // refers to the arenas

 private:
  void allocate(Runtime& runtime);
  void fill_constants(const Runtime& runtime);
  void link_launches(const Runtime& runtime, std::span<Tensor> fetched);
  void deal(const Runtime& runtime);
  void make_queues();
  void make_programs();
  void* address(BufferIndex buffer, const Runtime& runtime, std::span<Tensor> fetched) const;

  std::vector<void*> addresses;                // of all launches
  std::vector<std::vector<void**>> feed_uses;  // addresses to set, per feed
};

}  // namespace belfry
