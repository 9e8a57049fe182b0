// Runs single kernels of a GPU, as GpuBackend prepares them, on tensors of the host.
#pragma once
#include <memory>

#include "belfry/framework/device/gpu_backend.h"
#include "belfry/framework/graph/kernel.h"

namespace belfry::test {

class GpuRunner {
 public:
  // On this GPU of the backend, which outlives it.
  explicit GpuRunner(const GpuBackend& backend, int gpu = 0);
  ~GpuRunner();

  // Does on the GPU what `run`, which was prepared for the plan, enqueues: copies all tensors
  // there, runs it, and copies outputs and written variables back. Throws what the kernel refuses,
  // and Internal if it wrote to its inputs or near its tensors. The runtime outlives it.
  KernelRun kernel(const KernelPlan& plan, GpuRun run);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belfry::test
