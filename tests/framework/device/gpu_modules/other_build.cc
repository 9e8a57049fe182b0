// A GPU module that was built with another library. Its backend must not be touched.
#include "belfry/framework/device/gpu_backend.h"

extern "C" const belfry::GpuBackend* belfry_gpu_backend(const char*, const char** own) {
  *own = "0.0.9-0123456789ab";
  return nullptr;
}
