// Runs on the host, one after another, what kernels of the GPU module enqueue. Plain loops compute
// the calls of libraries from the calls' values alone.
#pragma once
#include <map>

#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/graph/node.h"
#include "belfry/tests/cuda/permuted_order.h"

namespace belfry::cuda {

class HostQueue final : public KernelQueue {
 public:
  // `order`: of a PermutedOrder for each launch; 0: blocks and threads run by number.
  explicit HostQueue(std::uint64_t step = 0, int order = 0) : step_(step), order_(order) {}

  void launch(const KernelLaunch& launch) override {
    ++launches_;
    if (order_ == 0)
      launch.on_host(launch.kernel, launch.grid, {});
    else
      launch.on_host(launch.kernel, launch.grid, PermutedOrder(order_, launch.grid).order());
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
  int order_;
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

// Runs a kernel that was prepared for the plan on the host, in PermutedOrder 1, and again in orders
// 2 to `orders`. Throws InternalError if bits differ.
KernelRun in_orders(const KernelPlan& plan, QueueRun run, int orders);

}  // namespace belfry::cuda
