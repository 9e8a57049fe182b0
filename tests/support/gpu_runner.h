// Runs single kernels of a GPU on tensors of the host, as GpuBackend prepares them.
#pragma once
#include <memory>

#include "belfry/framework/device/gpu_backend.h"
#include "belfry/framework/graph/kernel.h"

namespace belfry::test {

class GpuRunner {
 public:
  // Runs on this GPU of the backend, which outlives this.
  explicit GpuRunner(const GpuBackend& backend, int gpu = 0);
  ~GpuRunner();

  // A kernel that runs `run`, which was prepared for the plan, on the GPU. It copies all tensors
  // there, runs it, and copies outputs and written variables back. Throws what the kernel refuses,
  // and InternalError if it wrote to its inputs or near its tensors. This object outlives it.
  KernelRun kernel(const KernelPlan& plan, GpuRun run);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belfry::test
