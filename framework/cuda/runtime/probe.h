// A kernel that does nothing, to check whether a GPU can run what this module was compiled for.
#pragma once
#include <cuda_runtime_api.h>

namespace belfry::cuda {

// Returns cudaErrorNoKernelImageForDevice if the module has no code for the current GPU. Launches
// nothing.
cudaError_t probe_code();

}  // namespace belfry::cuda
