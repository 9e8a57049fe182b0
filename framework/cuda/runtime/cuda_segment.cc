#include "belfry/framework/cuda/runtime/cuda_segment.h"

#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"

namespace belfry::cuda {

CudaSegment::CudaSegment(cudaGraph_t captured, cudaStream_t stream, std::string where)
    : where_(std::move(where)) {
  cudaGraphExec_t executable = nullptr;
  // Launches keep the priorities of the streams that they were captured from.
  BELFRY_GPU_CALL(
      cudaGraphInstantiate(&executable, captured, cudaGraphInstantiateFlagUseNodePriority), where_);
  graph_.reset(executable);
  BELFRY_GPU_CALL(cudaGraphUpload(executable, stream), where_);
}

void CudaSegment::launch(cudaStream_t stream) const {
  BELFRY_GPU_CALL(cudaGraphLaunch(graph_.get(), stream), where_);
}

std::string segment_text(const Node& first, const Node& last, const std::string& device) {
  return cat("for the segment from ", first.describe(), " to ", last.describe(), ", on ", device);
}

}  // namespace belfry::cuda
