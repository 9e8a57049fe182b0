// The libraries of a GPU as the source of algorithms.
#pragma once
#include "belfry/framework/cuda/runtime/algorithm_provider.h"
#include "belfry/framework/cuda/runtime/cublas_lt.h"
#include "belfry/framework/cuda/runtime/cudnn.h"

namespace belfry::cuda {

// Of the GPU that is current where its functions are called. Libraries are asked for handles when
// they are first asked anything.
class GpuAlgorithms final : public AlgorithmSource {
 public:
  // `device` is its name in errors, `gpu` that of its kind.
  GpuAlgorithms(std::string device, std::string gpu);

  // What is asked from now on is asked for the node: errors name it.
  void serve(const Node& node) { where_.node = &node; }

  std::string machine() const override { return machine_; }
  std::vector<CudnnAlgorithm> ranked(const Convolution& convolution) override {
    return dnn_.ranked(convolution, where_);
  }
  std::vector<CudnnAlgorithm> measured(const Convolution& convolution) override {
    return dnn_.measured(convolution, where_);
  }
  bool convolves(const Convolution& convolution, const CudnnAlgorithm& algorithm) override {
    return dnn_.convolves(convolution, algorithm, where_);
  }
  bool pools(const Pooling& pooling) override { return dnn_.pools(pooling, where_); }
  MatMulAlgorithm matmul(const MatMul& matmul) override { return blas_.algorithm(matmul, where_); }
  std::vector<CudnnAlgorithm> ranked(const Attention& attention) override {
    return CudnnAttention::algorithms(attention, where_);
  }
  // Each is run a few times on tensors of zeros. Allocates and waits.
  std::vector<double> seconds(const Attention& attention,
                              std::span<const CudnnAlgorithm> algorithms,
                              const OwnKernel& ours) override;

 private:
  Where where_;
  std::string machine_;
  CublasLt blas_;
  Cudnn dnn_;
};

}  // namespace belfry::cuda
