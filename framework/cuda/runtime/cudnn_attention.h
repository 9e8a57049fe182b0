// Causal attention as graphs of cuDNN: products, a mask, a softmax and products again, which cuDNN
// recognises and computes by one kernel.
#pragma once
#include <vector>

#include "belfry/framework/cuda/kernels/calls.h"
#include "belfry/framework/cuda/runtime/cudnn_graph.h"

namespace belfry::cuda {

// Computes an Attention by cuDNN. Its memory grows with the time, not with its square. A gradient
// adds sums to dq in the order in which they arrive, so its bits differ from run to run.
class CudnnAttention {
 public:
  // The algorithms that cuDNN has kernels for, in its order. None is marked as deterministic. The
  // list is empty if cuDNN refuses the graph: it takes heads of multiples of 8 columns, up to 256.
  // It is also empty before 9.10.2, and before 9.16 for gradients of times that are not a multiple
  // of 128. `device`: as for configurations().
  static std::vector<CudnnAlgorithm> algorithms(const Attention& attention, const Where& where,
                                                cudnnBackendDescriptor_t device = nullptr);

  // `number` is the place among the graph's configurations. Throws DeviceError if there is none.
  CudnnAttention(const Attention& attention, int number, const Where& where);

  cudnnStatus_t run(cudnnHandle_t handle, const AttentionCall& call, const Where& where) const;

 private:
  CudnnPlan plan_;
};

}  // namespace belfry::cuda
