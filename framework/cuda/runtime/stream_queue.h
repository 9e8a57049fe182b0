// The queue that is a stream of a GPU.
#pragma once
#include <map>

#include "belfry/framework/cuda/kernels/queue.h"
#include "belfry/framework/cuda/runtime/cublas_lt.h"
#include "belfry/framework/cuda/runtime/cudnn.h"

namespace belfry::cuda {

// What a kernel needs of a queue beside its stream and memory.
struct Needs {
  bool memory = true;  // for its faults and the number of the step
  bool cublas_lt = false, cudnn = false;
};

// Its stream is of the GPU that is current when it is made, which is current, too, where its
// functions are called.
class StreamQueue final : public KernelQueue {
 public:
  // `device` is its name in errors: "gpu:1".
  explicit StreamQueue(std::string device);

  // Makes what is needed and not there, before the first kernel that needs it. Enqueues nothing in
  // its stream.
  void get_ready(Needs needs);

  // What is enqueued from now on is the node's: errors name it.
  void serve(const Node& node) { where_.node = &node; }
  cudaStream_t stream() const { return stream_.get(); }
  const Where& where() const { return where_; }

  void launch(const KernelLaunch& launch) override;
  void matmul(const MatMulCall& call) override { blas_.matmul(call, stream(), where_); }
  void convolve(const ConvolutionCall& call) override { dnn_.convolve(call, where_); }
  void pool(const PoolingCall& call) override { dnn_.pool(call, where_); }
  void attend(const AttentionCall& call) override { dnn_.attend(call, where_); }
  // The same; false if cuDNN refuses it.
  bool attends(const AttentionCall& call) { return dnn_.attends(call, where_); }
  // Throws Internal for more than kMostFaults of them at once.
  Fault* fault(const std::shared_ptr<const Refusal>& refusal) override;
  const std::uint64_t* step() const override { return static_cast<std::uint64_t*>(step_.get()); }
  // What step() points to.
  std::uint64_t* step_word() { return static_cast<std::uint64_t*>(step_.get()); }

  // Enqueues that the host be told of the faults so far.
  void tell_faults();
  // Throws for the first of those that the host was told of, in the order of their places. That is
  // the order in which they were asked for, where none took the place of one that is gone. The
  // error is a FailedLaunch of their node, without a device.
  void raise_fault() const;
  // Enqueues that there be none. While the host waits for nothing; a failure of the GPU has been
  // reported, or will be.
  void forget_faults() noexcept;

 private:
  static constexpr std::size_t kMostFaults = 1 << 16;
  static constexpr std::size_t kFaultBytes = kMostFaults * sizeof(Fault);

  void make_memory();

  Where where_;
  Stream stream_;
  DeviceMemory faults_;  // kFaultBytes, and on the host what was told of them; null before
  PinnedMemory told_;    // get_ready()
  struct Noted {
    std::size_t place;
    const Node* node;  // that was served, for errors; null for none
  };
  std::map<std::weak_ptr<const Refusal>, Noted, std::owner_less<>> fault_of_;
  DeviceMemory step_;
  CublasLt blas_;
  Cudnn dnn_;
};

// Throws DeviceError for a grid that CUDA has no numbers for.
void check_grid(Grid grid, const Where& where);

}  // namespace belfry::cuda
