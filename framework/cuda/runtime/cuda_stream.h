// Streams and events of GPUs, as steps use them.
#pragma once
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/runtime/handles.h"
#include "belfry/framework/cuda/runtime/stream_queue.h"
#include "belfry/framework/device/gpu_backend.h"

namespace belfry::cuda {

class CudaEvent final : public GpuEvent {
 public:
  explicit CudaEvent(Event event) : event_(std::move(event)) {}
  cudaEvent_t get() const { return event_.get(); }

 private:
  Event event_;
};

// A GpuRun of the module: enqueues `run` in a CudaStream, which must have its needs.
struct StreamRun {
  void operator()(const KernelPointers& p, GpuStream& stream) const;

  QueueRun run;
  Needs needs = {};
};

// The stream of the module's work; tests replace it.
class KernelStream : public GpuStream {
 public:
  virtual KernelQueue& queue() = 0;
  virtual cudaStream_t handle() const = 0;
};

class CudaStream final : public KernelStream {
 public:
  // Makes a stream of the current GPU, which must be current in calls of all functions but check()
  // and drain().
  explicit CudaStream(int gpu, bool is_urgent = false);
  ~CudaStream() override { use(); }

  KernelQueue& queue() override { return queue_; }
  cudaStream_t handle() const override { return queue_.stream(); }

  void get_ready(const GpuRun& run) override;
  void serve(const Node& node) override { queue_.serve(node); }
  void copy(void* to, const void* from, std::size_t bytes) override;
  void copy_each(std::span<void* const> to, std::span<const void* const> from,
                 std::span<const std::size_t> bytes) override;
  void record(GpuEvent& event) override;
  void wait(const GpuEvent& event) override;
  void stamp(std::int64_t& counter, std::int64_t value) override;
  void set_step(GpuStream& kernels, std::uint64_t step) override;
  void begin_capture(const Node& first, const Node& last) override;
  std::unique_ptr<GpuSegment> end_capture() override;
  void abandon_capture() noexcept override;
  void launch(const GpuSegment& segment) override;
  void check() const override;
  void check_inputs() const override { queue_.raise_fault(); }
  void drain() noexcept override;

 private:
  // Makes the GPU current. Checks nothing, since CUDA refuses every call after a failure.
  void use() const noexcept { cudaSetDevice(gpu_); }

  int gpu_;
  StreamQueue queue_;
  std::string captured_;  // the capture's name in errors
};

}  // namespace belfry::cuda
