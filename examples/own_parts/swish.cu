// The kernel of Swish for GPUs, with the bits of hosts.
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "swish.h"
using namespace belfry;

namespace {

cuda::QueueRun swish_on_gpu(KernelPlan& plan) {
  const SwishElement element{plan.options<SwishOptions>().beta};
  return cuda::visit_stored(plan.dtype(), [&]<class T>(T) -> cuda::QueueRun {
    return [element](const KernelPointers& p, cuda::KernelQueue& queue) {
      cuda::Map<SwishElement, T, 1> kernel{.f = element,
                                           .count = p.end() - p.begin(),
                                           .y = p.output<T>() + p.begin(),
                                           .x = {p.input<T>(0) + p.begin()}};
      cuda::launch_map(queue, kernel);
    };
  });
}

const cuda::GpuKernel kernel(kSwish, swish_on_gpu, cuda::kTakesHalf);

}  // namespace
