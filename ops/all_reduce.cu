#include "belfry/framework/cuda/kernels/fused_kernel.h"
#include "belfry/framework/cuda/kernels/tree_sum.h"
#include "belfry/framework/device/collective_hook.h"
#include "belfry/ops/all_reduce.h"

namespace belfry::cuda {
namespace {

QueueRun all_reduce(KernelPlan& plan) {
  const Node& node = plan.node();
  const AllReduceShare share(plan);
  const std::size_t towers = share.participants;
  TreeSum sums(plan.dtype(), towers, towers, share.divisor);
  for (std::size_t i = 0; i < plan.inputs(); i += towers)
    sums.append(plan.input(i).shape.elements());
  return [&node, sums](const KernelPointers& p, KernelQueue& queue) {
    call_collective_hook(node, {p.begin(), p.end()});
    sums(p, queue);
  };
}

bool is_mean(const Node& node) { return node.options<AllReduceOptions>().mean; }

const GpuKernel kernel(kAllReduce, all_reduce, kTakesHalf),
    of_ranks(kNcclAllReduce, all_reduce, kTakesHalf);
const FusedSum fused(kAllReduce, is_mean);

}  // namespace
}  // namespace belfry::cuda
