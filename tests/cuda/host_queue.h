// Runs on the host, one after another, what kernels of the GPU module enqueue. Plain loops compute
// the calls of libraries from the calls' values alone.
#pragma once
#include <map>

#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/graph/node.h"

namespace belfry::cuda {

class HostQueue final : public KernelQueue {
 public:
  explicit HostQueue(std::uint64_t step = 0) : step_(step) {}

  void launch(const KernelLaunch& launch) override {
    ++launches_;
    launch.on_host(launch.kernel, launch.grid);
  }
  void matmul(const MatMulCall& call) override;
  void convolve(const ConvolutionCall& call) override;
  void pool(const PoolingCall& call) override;
  void attend(const AttentionCall& call) override;
  void recur(const RecurrenceCall& call) override;
  void recur_back(const RecurrenceGradCall& call) override;
  Fault* fault(const std::shared_ptr<const Refusal>& refusal) override { return &faults_[refusal]; }
  const std::uint64_t* step() const override { return &step_; }

  // The number of launches so far.
  int launches() const { return launches_; }
  // Throws for input that kernels have noted.
  void check() const {
    for (const auto& [refusal, fault] : faults_)
      if (fault.first != Fault::kNone) refusal->raise(fault.element(), fault.value());
  }

 private:
  std::uint64_t step_;
  int launches_ = 0;
  std::map<std::shared_ptr<const Refusal>, Fault> faults_;
};

// Algorithms that need workspace. With own_kernels, none for calls that kernels of ours compute,
// too.
class HostAlgorithms final : public Algorithms {
 public:
  explicit HostAlgorithms(bool own_kernels) : own_kernels_(own_kernels) {}
  MatMulAlgorithm matmul(const MatMul&) override { return {.workspace_bytes = 96}; }
  std::optional<CudnnAlgorithm> convolution(const Convolution&) override {
    if (own_kernels_) return {};
    return CudnnAlgorithm{.workspace_bytes = 160};
  }
  bool pooling(const Pooling&) override { return !own_kernels_; }
  std::optional<CudnnAlgorithm> attention(const Attention&, const MakeOwnKernel&) override {
    if (own_kernels_) return {};
    return CudnnAlgorithm{.workspace_bytes = 160};
  }
  std::optional<CudnnAlgorithm> recurrence(const Recurrence&, const MakeRecurrence&) override {
    if (own_kernels_) return {};
    return CudnnAlgorithm{.workspace_bytes = 160};
  }

 private:
  bool own_kernels_;
};

// The module's kernel for this node, run on the host; empty if there is none.
KernelRun gpu_kernel_on_host(KernelPlan& plan, Algorithms& algorithms);

}  // namespace belfry::cuda
