// What the GPU module, libbelfry_cuda.so, is to the library: an object behind this class, reached
// by one function. The library includes no header of CUDA and links none of its libraries.
#pragma once
#include <cstdint>
#include <string>

namespace belfry {

// A physical GPU.
struct GpuInfo {
  std::string name;  // "NVIDIA H200"
  std::int64_t memory_bytes = 0;
  int major = 0, minor = 0;  // of its compute capability
};

// As "13.0" or "9.19.0".
struct GpuVersions {
  std::string driver;   // of CUDA, the newest that the driver serves; "" without a driver
  std::string runtime;  // of CUDA
  std::string cublas_lt, cudnn;
};

struct NcclInfo {
  int version = 0;      // 22809 is 2.28.9; 0 if there is none
  std::string why_not;  // one line; "" if there is NCCL
};

// Its functions may be called from several threads, and throw DeviceError for what CUDA refuses.
class GpuBackend {
 public:
  virtual ~GpuBackend() = default;

  // How many GPUs CUDA finds; 0 where it cannot say.
  virtual int count() const = 0;
  // One line of why there are none, and what to do; "" if there are.
  virtual std::string why_none() const = 0;
  // The following three throw InvalidArgument for numbers that are not below count().
  virtual GpuInfo info(int gpu) const = 0;
  // Why no kernel of the module runs on that GPU; "" if they do. Makes a CUDA context there.
  virtual std::string refusal(int gpu) const = 0;
  // Whether `from` can read and write the memory of `to`.
  virtual bool peer_access(int from, int to) const = 0;
  virtual GpuVersions versions() const = 0;
  // Opens the library of NCCL at the first call.
  virtual NcclInfo nccl() const = 0;
};

// The type and the name of the one function that a module exports with C linkage. Sets `own` to the
// module's identity (build_identity.cmake). Returns its backend, which lives as long as the
// process, or null if that is not `wanted`: then the two were not built together, and no virtual
// function may be called. Throws nothing.
using GpuModuleEntry = const GpuBackend*(const char* wanted, const char** own);
inline constexpr const char* kGpuModuleEntry = "belfry_gpu_backend";

}  // namespace belfry
