// What sessions ask of the module: memory, streams and kernels of its GPUs.
#pragma once
#include <map>
#include <memory>
#include <mutex>

#include "belfry/framework/cuda/algorithm_table.h"
#include "belfry/framework/gpu_backend.h"

namespace belfry::cuda {

class DrivingBackend : public GpuBackend {
 public:
  DrivingBackend();
  ~DrivingBackend() override;

  void* allocate(int gpu, std::size_t bytes) const override;
  void deallocate(int gpu, void* memory) const noexcept override;
  void* allocate_pinned(std::size_t bytes) const override;
  void deallocate_pinned(void* memory) const noexcept override;
  void copy(void* to, const void* from, std::size_t bytes) const override;
  // Lets the GPU reach the memory of its peers.
  std::unique_ptr<GpuStream> make_stream(int gpu) const override;
  std::unique_ptr<GpuEvent> make_event(int gpu) const override;
  void use(int gpu) const override;
  // Libraries compute by algorithms that give the same bits each time.
  GpuRun prepare(int gpu, KernelPlan& plan) const override;
  GpuRun prepare_fused(int gpu, const Plan& plan, const PlanNode& node) const override;

 private:
  struct Chooser;

  void need(int gpu) const;

  mutable std::mutex choosing_;
  mutable AlgorithmTable table_;
  mutable std::map<int, std::unique_ptr<Chooser>> choosers_;  // by GPU, from its first kernel on
};

}  // namespace belfry::cuda
