// Chooses the libraries' algorithms. Kernels ask when they are prepared, never in a run.
#pragma once
#include <functional>
#include <optional>

#include "belfry/framework/cuda/kernels/queue.h"

namespace belfry::cuda {

// A kernel of an op that is measured: one of ours for a call that a library also computes.
struct OwnKernel {
  QueueRun run;  // takes the tensors of the op
  std::int64_t workspace_bytes = 0;
};
using MakeOwnKernel = std::function<OwnKernel()>;

// Both passes of a recurrence. The gradient reads what the forward pass of the same algorithm has
// saved, so that one choice holds for both.
struct RecurrenceKernels {
  OwnKernel forward, gradient;
};
// Those that call cuDNN; without an algorithm, ours.
using MakeRecurrence =
    std::function<RecurrenceKernels(const std::optional<CudnnAlgorithm>& algorithm)>;

class Algorithms {
 public:
  virtual ~Algorithms() = default;
  // Throws DeviceError if cuBLASLt has none.
  virtual MatMulAlgorithm matmul(const MatMul& matmul) = 0;
  // Empty if cuDNN has none: then our own kernel computes it.
  virtual std::optional<CudnnAlgorithm> convolution(const Convolution& convolution) = 0;
  // Whether cuDNN computes it.
  virtual bool pooling(const Pooling& pooling) = 0;
  // Empty if our own kernel computes it: cuDNN has none, ours is faster, cuDNN's results differ
  // from ours, or each run must give the same bits. `ours` is called only if its kernel is measured
  // against cuDNN's.
  virtual std::optional<CudnnAlgorithm> attention(const Attention& attention,
                                                  const MakeOwnKernel& ours) = 0;
  // Like attention(). The answer for a recurrence is always the same.
  virtual std::optional<CudnnAlgorithm> recurrence(const Recurrence& recurrence,
                                                   const MakeRecurrence& make) = 0;
};

}  // namespace belfry::cuda
