// Whether CUDA finds GPUs here, and if not, one line of why.
#pragma once
#include <optional>
#include <string>

#include <cuda_runtime_api.h>

namespace belfry::cuda {

// CUDA's answers about GPUs.
struct Presence {
  int count = 0;
  cudaError_t status = cudaSuccess;    // of cudaGetDeviceCount
  int driver = 0, runtime = 0;         // versions of CUDA, 13000 is 13.0; 0 without a driver
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES, if it is set
};

// Asks CUDA. An error counts as no GPUs, and CUDA does not keep it.
Presence find_devices();

// "" if there are GPUs.
std::string why_none(const Presence& found);

// As nvidia-smi writes it: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".
std::string uuid_text(const cudaUUID_t& uuid);

// "13.0" of 13000.
std::string cuda_version(int version);

}  // namespace belfry::cuda
