// The KernelQueue of a GPU's stream.
#pragma once
#include <map>

#include "belfry/framework/cuda/kernels/queue.h"
#include "belfry/framework/cuda/runtime/cublas_lt.h"
#include "belfry/framework/cuda/runtime/cudnn.h"

namespace belfry::cuda {

// What a kernel needs from a queue besides its stream.
struct Needs {
  bool memory = true;  // for its faults and the number of the step
  bool cublas_lt = false, cudnn = false;
};

// Its stream is of the GPU that is current when the queue is made. The same GPU must be current
// when its functions are called.
class StreamQueue final : public KernelQueue {
 public:
  // `device` is its name in errors: "gpu:1".
  explicit StreamQueue(std::string device, bool is_urgent = false);

  // Creates what is needed and missing; call it before the first kernel that needs it. Enqueues
  // nothing in the queue's stream.
  void get_ready(Needs needs);

  // Later work is for the node, which errors name.
  void serve(const Node& node) { where_.node = &node; }
  cudaStream_t stream() const { return stream_.get(); }
  const Where& where() const { return where_; }

  void launch(const KernelLaunch& launch) override;
  void matmul(const MatMulCall& call) override { blas_.matmul(call, stream(), where_); }
  void convolve(const ConvolutionCall& call) override { dnn_.convolve(call, where_); }
  void pool(const PoolingCall& call) override { dnn_.pool(call, where_); }
  void attend(const AttentionCall& call) override { dnn_.attend(call, where_); }
  // Like attend(); false if cuDNN refuses the call.
  bool attends(const AttentionCall& call) { return dnn_.attends(call, where_); }
  void recur(const RecurrenceCall& call) override { dnn_.recur(call, where_); }
  void recur_back(const RecurrenceGradCall& call) override { dnn_.recur_back(call, where_); }
  // Throws InternalError for more than kMostFaults refusals at once.
  Fault* fault(const std::shared_ptr<const Refusal>& refusal) override;
  const std::uint64_t* step() const override { return static_cast<std::uint64_t*>(step_.get()); }
  // The word that step() points to.
  std::uint64_t* step_word() { return static_cast<std::uint64_t*>(step_.get()); }

  // Enqueues a copy of the faults so far to the host.
  void tell_faults();
  // Throws for the first fault, by place, that was copied to the host. Places are in the order of
  // fault() calls, but a new refusal may take the place of one that is gone. The error is a
  // FailedLaunch of the fault's node, without a device.
  void raise_fault() const;
  // Enqueues a reset of the faults. Call it while the host waits for nothing. A GPU failure has
  // been reported, or will be.
  void forget_faults() noexcept;

 private:
  static constexpr std::size_t kMostFaults = 1 << 16;
  static constexpr std::size_t kFaultBytes = kMostFaults * sizeof(Fault);

  void make_memory();

  Where where_;
  Stream stream_;
  DeviceMemory faults_;  // kFaultBytes; null before get_ready()
  PinnedMemory told_;    // the host's copy of faults_
  struct Noted {
    std::size_t place;
    const Node* node;  // the node that was served, for errors; may be null
  };
  std::map<std::weak_ptr<const Refusal>, Noted, std::owner_less<>> fault_of_;
  DeviceMemory step_;
  CublasLt blas_;
  Cudnn dnn_;
};

// Throws DeviceError for a grid of more blocks than CUDA launches.
void check_grid(Grid grid, const Where& where);

}  // namespace belfry::cuda
