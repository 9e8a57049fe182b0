// A stream for communicators over a FakeNccl.
#pragma once
#include "belfry/framework/cuda/runtime/cuda_stream.h"
#include "belfry/tests/cuda/host_queue.h"

namespace belfry::cuda {

// Does its work at once.
class HostStream final : public KernelStream {
 public:
  KernelQueue& queue() override { return queue_; }
  cudaStream_t handle() const override { return nullptr; }
  void get_ready(const GpuRun&) override {}
  void serve(const Node&) override {}
  void copy(void*, const void*, std::size_t) override {}
  void copy_each(std::span<void* const>, std::span<const void* const>,
                 std::span<const std::size_t>) override {}
  void record(GpuEvent&) override {}
  void wait(const GpuEvent&) override {}
  void stamp(std::int64_t&, std::int64_t) override {}
  void set_step(GpuStream&, std::uint64_t) override {}
  void begin_capture(const Node&, const Node&) override {}
  std::unique_ptr<GpuSegment> end_capture() override { return nullptr; }
  void abandon_capture() noexcept override {}
  void launch(const GpuSegment&) override {}
  void check() const override {}
  void check_inputs() const override {}
  void drain() noexcept override {}

 private:
  HostQueue queue_;
};

}  // namespace belfry::cuda
