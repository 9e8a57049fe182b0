#include "belfry/framework/collective_hook.h"
#include "belfry/framework/cuda/fused_kernel.h"
#include "belfry/framework/cuda/tree_sum.h"
#include "belfry/ops/all_reduce.h"

namespace belfry::cuda {
namespace {

QueueRun all_reduce(KernelPlan& plan) {
  const Node& node = plan.node();
  const auto towers = static_cast<std::size_t>(node.participants());
  TreeSum sums(plan, towers, towers, plan.options<AllReduceOptions>().mean);
  for (std::size_t i = 0; i < plan.inputs(); i += towers)
    sums.append(plan.input(i).shape.elements());
  return [&node, sums](const Pointers& p, Queue& queue) {
    call_collective_hook(node, {p.begin(), p.end()});
    sums(p, queue);
  };
}

bool is_mean(const Node& node) { return node.options<AllReduceOptions>().mean; }

const GpuKernel kernel(kAllReduce, all_reduce);
const FusedSum fused(kAllReduce, is_mean);

}  // namespace
}  // namespace belfry::cuda
