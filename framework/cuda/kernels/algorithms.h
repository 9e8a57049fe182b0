// Which algorithm of a library computes what. Kernels ask when they are prepared, never in a run.
#pragma once
#include <optional>

#include "belfry/framework/cuda/kernels/calls.h"

namespace belfry::cuda {

class Algorithms {
 public:
  virtual ~Algorithms() = default;
  // Throws DeviceError if cuBLASLt has none.
  virtual MatMulAlgorithm matmul(const MatMul& matmul) = 0;
  // Empty if cuDNN has none: then a kernel of ours computes it.
  virtual std::optional<CudnnAlgorithm> convolution(const Convolution& convolution) = 0;
  // Whether cuDNN computes it.
  virtual bool pooling(const Pooling& pooling) = 0;
};

}  // namespace belfry::cuda
