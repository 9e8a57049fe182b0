// Streams and events of GPUs, as steps use them.
#pragma once
#include "belfry/framework/cuda/handles.h"
#include "belfry/framework/gpu_backend.h"

namespace belfry::cuda {

class CudaEvent final : public GpuEvent {
 public:
  explicit CudaEvent(int gpu);
  cudaEvent_t get() const { return event_.get(); }

 private:
  Event event_;
};

class CudaStream final : public GpuStream {
 public:
  explicit CudaStream(int gpu);

  void serve(const Node& node) override { node_ = &node; }
  void copy(void* to, const void* from, std::size_t bytes) override;
  void record(GpuEvent& event) override;
  void wait(const GpuEvent& event) override;
  void stamp(std::int64_t& counter, std::int64_t value) override;
  void check() const override;
  void drain() noexcept override;

 private:
  std::string context() const;  // for errors

  int gpu_;
  const Node* node_ = nullptr;
  Stream stream_;
};

}  // namespace belfry::cuda
