// Segments of steps, as CUDA graphs.
#pragma once
#include <string>

#include "belfry/framework/cuda/runtime/handles.h"
#include "belfry/framework/device/gpu_backend.h"

namespace belfry::cuda {

using CapturedGraph = Owned<cudaGraph_t, cudaGraphDestroy>;
using ExecutableGraph = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

class CudaSegment final : public GpuSegment {
 public:
  // Makes `captured` ready for launches in the stream that captured it; `where` names it in errors.
  // It is no longer needed then.
  CudaSegment(cudaGraph_t captured, cudaStream_t stream, std::string where);

  void launch(cudaStream_t stream) const;

 private:
  std::string where_;
  ExecutableGraph graph_;
};

// "for the segment from ... to ..., on GPU 1": the first node, the last one, and the GPU.
std::string segment_text(const Node& first, const Node& last, const std::string& device);

}  // namespace belfry::cuda
