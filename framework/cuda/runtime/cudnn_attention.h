// Causal attention as graphs of cuDNN: products, a mask, a softmax and products again, which cuDNN
// recognises and computes by one kernel.
#pragma once
#include <vector>

#include "belfry/framework/cuda/kernels/calls.h"
#include "belfry/framework/cuda/runtime/cudnn_graph.h"

namespace belfry::cuda {

// What cuDNN computes an Attention by. A gradient has two graphs: sums for dq are computed in order
// by the help of a matrix of all pairs, or are added up as they come, in memory that grows with the
// time alone. The second kind is not deterministic, though cuDNN does not say so.
class CudnnAttention {
 public:
  // Those that cuDNN has kernels for, the deterministic ones first. None where it refuses the
  // graph, as it does for heads of other sizes than multiples of 8 up to 256; none of versions
  // before 9.10.2, nor before 9.16 for gradients of times that are no multiple of 128. `device`: as
  // for configurations().
  static std::vector<CudnnAlgorithm> algorithms(const Attention& attention, const Where& where,
                                                cudnnBackendDescriptor_t device = nullptr);

  // `number` is 2 * the place among the configurations of a graph, + 1 for those that add as it
  // comes. Throws DeviceError if there is none of this number.
  CudnnAttention(const Attention& attention, int number, const Where& where);

  cudnnStatus_t run(cudnnHandle_t handle, const AttentionCall& call, const Where& where) const;

 private:
  CudnnAttention(const Attention& attention, int number, const BackendDescriptor& configuration,
                 const Where& where, cudnnBackendDescriptor_t device);

  CudnnPlan plan_;
  CudnnAlgorithm algorithm_;
};

}  // namespace belfry::cuda
