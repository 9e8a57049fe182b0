// GPU kernels of ops outside the tree: libraries that are loaded with the GPU module. CMake's
// belfry_add_gpu_kernels() builds such a library from .cu files, and adds a source with its
// registration to the program.
#pragma once
#include <string>

namespace belfry {

// Names a library while this lives. Make it before the process first uses GPUs.
class GpuKernelsRegistration {
 public:
  // `file` is in the folder of the library that has this object, or in that of the program; else
  // the dynamic linker looks it up. A name with a slash is taken as it is. If the library cannot be
  // loaded, or was built with headers of another Belfry, there are no GPUs (Gpus::why_none).
  explicit GpuKernelsRegistration(const std::string& file);
  ~GpuKernelsRegistration();
  GpuKernelsRegistration(const GpuKernelsRegistration&) = delete;
  GpuKernelsRegistration& operator=(const GpuKernelsRegistration&) = delete;
};

// The type and the name of the function that such a library exports with C linkage: it returns the
// identity of the Belfry that it was built with. Its kernels register themselves (GpuKernel).
using GpuKernelsEntry = const char*();
inline constexpr const char* kGpuKernelsEntry = "belfry_gpu_kernels";

}  // namespace belfry
