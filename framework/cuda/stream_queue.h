// The queue that is a stream of a GPU.
#pragma once
#include "belfry/framework/cuda/cublas_lt.h"
#include "belfry/framework/cuda/cudnn.h"
#include "belfry/framework/cuda/queue.h"

namespace belfry::cuda {

// Its stream and handles are of the GPU that is current when it is made, which is current, too,
// where its functions are called.
class StreamQueue final : public Queue {
 public:
  // `device` is its name in errors: "gpu:1".
  explicit StreamQueue(std::string device);

  // What is enqueued from now on is the node's: errors name it.
  void serve(const Node& node) { where_.node = &node; }
  cudaStream_t stream() const { return stream_.get(); }

  void launch(const KernelLaunch& launch) override;
  void matmul(const MatMulCall& call) override { blas_.matmul(call, stream(), where_); }
  void convolve(const ConvolutionCall& call) override { dnn_.convolve(call, where_); }
  void pool(const PoolingCall& call) override { dnn_.pool(call, where_); }

 private:
  Where where_;
  Stream stream_;
  CublasLt blas_;
  Cudnn dnn_;
};

// Throws DeviceError for a grid that CUDA has no numbers for.
void check_grid(Grid grid, const Where& where);

}  // namespace belfry::cuda
