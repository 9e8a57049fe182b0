#include "belfry/framework/passes/compile.h"

#include <utility>

#include "belfry/framework/passes/passes.h"

namespace belfry {

Plan compile(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
             const PlanContext& context) {
  PlanGraph graph;
  graph.locks = context.locks;
  graph.gathers_first = context.gathers_first;
  graph.fuse = context.options.fuse;
  try {
    prune(graph, fetches, feeds);
  } catch (const InvalidArgument&) {
    verify_types(graph);  // names more exactly what towers disagree about
    throw;
  }
  order_towers(graph);
  place(graph, context);
  check_ranks(graph, context);
  verify(graph, context);
  share_replicas(graph, context);
  shards(graph, context);
  place_messages(graph, context);
  fuse_updates(graph, context);
  fuse(graph, context);
  add_transfers(graph, context);
  pack_weights(graph, context);
  rematerialise(graph, context);
  gather_first(graph, context);
  order_writes(graph);
  if (graph.locks == LockDuration::kEachVariable) copy_variables(graph);
  split_ranks(graph, context);
  group_copies(graph, context);
  pad_rows(graph, context);
  ExecutionSchedule launches = schedule(graph, context);
  prepare_kernels(graph, launches, context);
  MemoryLayout memory = plan_memory(graph, launches, context);
  Plan plan{std::move(graph), std::move(launches), std::move(memory), {}};
  plan.commands = issue(plan, context.options.capture);
  return plan;
}

}  // namespace belfry
