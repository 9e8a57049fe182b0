// The module's interface to the library.
#include <cstring>

#include <belfry_build_identity.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/runtime/driving_backend.h"
#include "belfry/framework/cuda/runtime/handles.h"
#include "belfry/framework/cuda/runtime/nccl_library.h"
#include "belfry/framework/cuda/runtime/presence.h"
#include "belfry/framework/cuda/runtime/probe.h"
#include "belfry/framework/device/gpu_backend.h"

namespace belfry::cuda {
namespace {

std::string pci_text(const cudaDeviceProp& gpu) {
  const auto digits = [](int number, std::size_t count) {
    return hex(static_cast<std::uint64_t>(number), count);
  };
  return cat(digits(gpu.pciDomainID, 4), ":", digits(gpu.pciBusID, 2), ":",
             digits(gpu.pciDeviceID, 2), ".0");
}

class CudaBackend final : public DrivingBackend {
 public:
  int count() const override { return found().count; }
  std::string why_none() const override { return cuda::why_none(found()); }

  GpuInfo info(int gpu) const override {
    need(gpu);
    cudaDeviceProp properties{};
    BELFRY_GPU_CALL(cudaGetDeviceProperties(&properties, gpu), "asking about GPU ", gpu);
    return {.name = properties.name,
            .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
            .major = properties.major,
            .minor = properties.minor,
            .pci_bus_id = pci_text(properties)};
  }

  std::string uuid(int gpu) const override {
    need(gpu);
    cudaDeviceProp properties{};
    BELFRY_GPU_CALL(cudaGetDeviceProperties(&properties, gpu), "asking about GPU ", gpu);
    return uuid_text(properties.uuid);
  }
  std::string refusal(int gpu) const override {
    const GpuInfo about = info(gpu);
    const DeviceGuard guard = enter(gpu);
    const cudaError_t status = probe_code();
    cudaGetLastError();
    if (status == cudaSuccess) return "";
    return cat("GPU ", gpu, " (", about.name, ", compute capability ", about.major, ".",
               about.minor, ") cannot run this module's code: ", status_text(status),
               "; it was built with CMAKE_CUDA_ARCHITECTURES=" BELFRY_CUDA_ARCHITECTURES);
  }

  bool peer_access(int from, int to) const override {
    need(from);
    need(to);
    if (from == to) return false;
    int possible = 0;
    BELFRY_GPU_CALL(cudaDeviceCanAccessPeer(&possible, from, to), "asking whether GPU ", from,
                    " reaches GPU ", to);
    return possible != 0;
  }

  GpuVersions versions() const override {
    return {.driver = found().driver > 0 ? cuda_version(found().driver) : "",
            .runtime = cuda_version(found().runtime),
            .cublas_lt = version_text(cublasLtGetVersion()),
            .cudnn = version_text(cudnnGetVersion())};
  }

  NcclInfo nccl() const override {
    const NcclLibrary& nccl = nccl_library();
    return {nccl.version, nccl.why_not, serves_several_ranks(nccl.version)};
  }

 private:
  static const Presence& found() {
    static const Presence presence = find_devices();
    return presence;
  }
};

}  // namespace
}  // namespace belfry::cuda

extern "C" const belfry::GpuBackend* belfry_gpu_backend(const char* wanted, const char** own) {
  // Never destroyed: the libraries of CUDA may end before static objects do.
  static const auto& backend = *new belfry::cuda::CudaBackend;
  *own = BELFRY_BUILD_IDENTITY;
  return std::strcmp(wanted, BELFRY_BUILD_IDENTITY) == 0 ? &backend : nullptr;
}
