// Runs the kernels of the GPU module on the host, one after another.
#pragma once
#include <map>

#include "belfry/framework/cuda/gpu_kernel.h"
#include "belfry/framework/node.h"

namespace belfry::cuda {

class HostQueue final : public Queue {
 public:
  void launch(const KernelLaunch& launch) override { launch.on_host(launch.kernel, launch.grid); }
  Fault* fault(const Refusal& refusal) override { return &faults_[&refusal]; }

  // Throws what kernels have noted.
  void check() const {
    for (const auto& [refusal, fault] : faults_)
      if (fault.first != Fault::kNone) refusal->raise(fault.element(), fault.value());
  }

 private:
  std::map<const Refusal*, Fault> faults_;
};

// What the module's kernel for this node does, on the host; empty if there is none.
inline KernelRun gpu_kernel_on_host(KernelPlan& plan) {
  const GpuPrepare prepare = find_gpu_kernel(plan.node().op());
  GpuRun run = prepare ? prepare(plan) : GpuRun();
  if (!run) return {};
  return [run = std::move(run)](const Pointers& p) {
    HostQueue queue;
    run(p, queue);
    queue.check();
  };
}

}  // namespace belfry::cuda
