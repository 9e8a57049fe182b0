// The libraries of a GPU as the source of algorithms.
#pragma once
#include "belfry/framework/cuda/runtime/algorithm_provider.h"
#include "belfry/framework/cuda/runtime/cublas_lt.h"
#include "belfry/framework/cuda/runtime/cudnn.h"

namespace belfry::cuda {

// For the GPU that is current when its functions are called. Makes a library's handle when the
// library is first asked.
class GpuAlgorithms final : public AlgorithmSource {
 public:
  // `device` is the GPU's name in errors, `gpu` the name of its kind.
  GpuAlgorithms(std::string device, std::string gpu);

  // Later questions are for the node, which errors name.
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
  // Runs each a few times on tensors of zeros. Allocates and waits.
  std::vector<double> seconds(const Attention& attention,
                              std::span<const CudnnAlgorithm> algorithms,
                              const OwnKernel& ours) override;
  std::vector<CudnnAlgorithm> ranked(const Recurrence& recurrence) override {
    return dnn_.ranked(recurrence, where_);
  }
  // Runs each a few times on random numbers, and compares the results of the first run with ours.
  // Allocates and waits.
  std::vector<double> seconds(const Recurrence& recurrence,
                              std::span<const RecurrenceKernels> kernels) override;

 private:
  Where where_;
  std::string machine_;
  CublasLt blas_;
  Cudnn dnn_;
};

}  // namespace belfry::cuda
