// A queue that counts what kernels of the GPU module move through the memory of a GPU. Nothing is
// computed but a few blocks of each launch, on a host.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/cuda/kernels/queue.h"
#include "belfry/tests/recorder/watched_memory.h"

namespace belfry::recorder {

// One launch of a kernel, or one call of a library.
struct CountedLaunch {
  std::string kernel;  // "Normalise", or the function of a library
  Touched moved;
};

// A kernel moves each tensor that it touches once: passes over the same tensor within a launch are
// not seen, and neither is what it reads after it has written it. A library reads its operands and
// writes its result once; its workspace is not known.
class CountingQueue final : public cuda::KernelQueue {
 public:
  // Where kernels find their tensors and workspace.
  WatchedMemory& memory() { return memory_; }
  // The launches since the last call, in order.
  std::vector<CountedLaunch> take() { return std::exchange(launches_, {}); }
  // All products so far.
  const std::vector<cuda::MatMul>& products() const { return products_; }

  void launch(const cuda::KernelLaunch& launch) override;
  void matmul(const cuda::MatMulCall& call) override;
  void convolve(const cuda::ConvolutionCall& call) override;
  void pool(const cuda::PoolingCall& call) override;
  void attend(const cuda::AttentionCall& call) override;
  void recur(const cuda::RecurrenceCall& call) override;
  void recur_back(const cuda::RecurrenceGradCall& call) override;
  cuda::Fault* fault(const std::shared_ptr<const cuda::Refusal>&) override { return &fault_; }
  const std::uint64_t* step() const override { return &step_; }

 private:
  WatchedMemory memory_;
  std::vector<CountedLaunch> launches_;
  std::vector<cuda::MatMul> products_;
  cuda::Fault fault_;
  std::uint64_t step_ = 0;
};

}  // namespace belfry::recorder
