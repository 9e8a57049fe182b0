// Chooses the libraries' algorithms. Kernels ask when they are prepared, never in a run.
#pragma once
#include <functional>
#include <optional>

#include "belfry/framework/cuda/kernels/queue.h"

namespace belfry::cuda {

// One of our own kernels for a call that a library also computes. Both are measured.
struct OwnKernel {
  QueueRun run;  // takes the tensors of the op
  std::int64_t workspace_bytes = 0;
};
using MakeOwnKernel = std::function<OwnKernel()>;

class Algorithms {
 public:
  virtual ~Algorithms() = default;
  // Throws DeviceError if cuBLASLt has none.
  virtual MatMulAlgorithm matmul(const MatMul& matmul) = 0;
  // Empty if cuDNN has none: then our own kernel computes it.
  virtual std::optional<CudnnAlgorithm> convolution(const Convolution& convolution) = 0;
  // Whether cuDNN computes it.
  virtual bool pooling(const Pooling& pooling) = 0;
  // Empty if our own kernel computes it: cuDNN has none, ours is faster, or each run must give the
  // same bits. `ours` is called only if its kernel is measured against cuDNN's.
  virtual std::optional<CudnnAlgorithm> attention(const Attention& attention,
                                                  const MakeOwnKernel& ours) = 0;
};

}  // namespace belfry::cuda
