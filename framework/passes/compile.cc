#include "belfry/framework/passes/compile.h"

#include "belfry/framework/passes/passes.h"

namespace belfry {

Plan compile(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
             const PlanContext& context) {
  Plan plan;
  plan.locks = context.locks;
  try {
    prune(plan, fetches, feeds);
  } catch (const InvalidArgument&) {
    verify_types(plan);  // says better what towers disagree about
    throw;
  }
  place(plan, context);
  check_ranks(plan, context);
  verify(plan, context);
  share_replicas(plan, context);
  fuse_updates(plan, context);
  add_transfers(plan, context);
  order_writes(plan);
  if (plan.locks == Locks::kEachVariable) copy_variables(plan);
  split_ranks(plan, context);
  group_copies(plan, context);
  schedule(plan, context);
  prepare_kernels(plan, context);
  plan_memory(plan, context);
  return plan;
}

}  // namespace belfry
