#include "belfry/framework/cuda/runtime/gpu_algorithms.h"

#include "belfry/framework/base/text.h"

namespace belfry::cuda {

GpuAlgorithms::GpuAlgorithms(std::string device, std::string gpu)
    : where_{.device = std::move(device)},
      machine_(cat(gpu, ", cuDNN ", version_text(cudnnGetVersion()))) {}

}  // namespace belfry::cuda
