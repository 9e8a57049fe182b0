#include "belfry/framework/cuda/runtime/presence.h"

#include <cstdlib>

#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/runtime/cuda_check.h"

namespace belfry::cuda {

Presence find_devices() {
  Presence found;
  cudaRuntimeGetVersion(&found.runtime);
  if (cudaDriverGetVersion(&found.driver) != cudaSuccess) found.driver = 0;
  found.status = cudaGetDeviceCount(&found.count);
  if (found.status != cudaSuccess) found.count = 0;
  cudaGetLastError();
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) found.visible = visible;
  return found;
}

std::string why_none(const Presence& found) {
  if (found.count > 0) return "";
  if (found.driver == 0) return "no NVIDIA driver is installed";
  if (found.status == cudaErrorInsufficientDriver)
    return cat("the NVIDIA driver is too old: it serves CUDA up to ", cuda_version(found.driver),
               ", and this build needs ", cuda_version(found.runtime), "; install a newer driver");
  if (found.status != cudaSuccess && found.status != cudaErrorNoDevice)
    return cat("CUDA finds no GPU: ", status_text(found.status));
  if (!found.visible) return "the NVIDIA driver finds no GPU";
  if (found.visible->empty()) return "all GPUs are hidden: CUDA_VISIBLE_DEVICES is empty";
  return cat("no GPU is visible: CUDA_VISIBLE_DEVICES is '", shown(*found.visible), "'");
}

std::string uuid_text(const cudaUUID_t& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte / 16];
    text += kDigits[byte % 16];
  }
  return text;
}

std::string cuda_version(int version) { return cat(version / 1000, ".", version % 1000 / 10); }

}  // namespace belfry::cuda
