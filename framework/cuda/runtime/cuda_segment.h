// Segments of steps, as graphs of CUDA.
#pragma once
#include <string>

#include "belfry/framework/cuda/runtime/handles.h"
#include "belfry/framework/device/gpu_backend.h"

namespace belfry::cuda {

using CapturedGraph = Owned<cudaGraph_t, cudaGraphDestroy>;
using ExecutableGraph = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

class CudaSegment final : public GpuSegment {
 public:
  // Of what a stream has captured, ready to be launched there; `where` names it in errors.
  CudaSegment(cudaGraph_t captured, cudaStream_t stream, std::string where);

  void launch(cudaStream_t stream) const;

 private:
  std::string where_;
  ExecutableGraph graph_;
};

// Its first and its last node, and the GPU: "for the segment from ... to ..., on GPU 1".
std::string segment_text(const Node& first, const Node& last, const std::string& device);

}  // namespace belfry::cuda
