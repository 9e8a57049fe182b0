// Gives sessions the memory, streams and kernels of the module's GPUs.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "belfry/framework/cuda/runtime/algorithm_table.h"
#include "belfry/framework/cuda/runtime/handles.h"
#include "belfry/framework/device/gpu_backend.h"

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
  std::unique_ptr<GpuStream> make_stream(int gpu, std::span<const int> peers,
                                         bool is_urgent = false) const override;
  std::unique_ptr<GpuEvent> make_event(int gpu) const override;
  std::unique_ptr<GpuEvent> make_timer(int gpu) const override;
  std::chrono::nanoseconds elapsed(const GpuEvent& from, const GpuEvent& to) const override;
  void use(int gpu) const override;
  std::string communicator_id() const override;
  std::unique_ptr<GpuCommunicators> make_communicators(
      std::span<const int> gpus, std::chrono::duration<double> limit, const RankWorld& world,
      const std::atomic<bool>& failed) const override;
  GpuRun prepare(int gpu, KernelPlan& plan, bool deterministic,
                 std::span<const std::int64_t> pitches = {}) const override;
  bool takes_pitches(const Op& op) const override;
  GpuRun prepare_fused(int gpu, const PlanGraph& plan, const PlanNode& node) const override;
  std::string algorithms(bool deterministic) const override;
  void give_algorithms(bool deterministic, std::string_view text,
                       const std::string& path) const override;

 protected:
  // Throws InvalidArgument if there is no such GPU.
  void need(int gpu) const;
  // Makes the GPU current.
  DeviceGuard enter(int gpu) const;

 private:
  struct Chooser;

  mutable std::atomic<int> entered_{0};  // the GPU entered last, which has a context
  mutable std::mutex choosing_;
  mutable AlgorithmTable measured_, deterministic_;
  // By GPU and whether it is deterministic; made for its first kernel.
  mutable std::map<std::pair<int, bool>, std::unique_ptr<Chooser>> choosers_;
};

}  // namespace belfry::cuda
