// Runs the kernels of the GPU module on the host, one after another.
#pragma once
#include "belfry/framework/cuda/gpu_kernel.h"

namespace belfry::cuda {

class HostQueue final : public Queue {
 public:
  void launch(const KernelLaunch& launch) override { launch.on_host(launch.kernel, launch.grid); }
};

// What the module's kernel for this node does, on the host; empty if there is none.
inline KernelRun gpu_kernel_on_host(KernelPlan& plan) {
  const GpuPrepare prepare = find_gpu_kernel(plan.node().op());
  GpuRun run = prepare ? prepare(plan) : GpuRun();
  if (!run) return {};
  return [run = std::move(run)](const Pointers& p) {
    HostQueue queue;
    run(p, queue);
  };
}

}  // namespace belfry::cuda
