#include "belfry/framework/device/gpus.h"

#include <atomic>

#include <belfry_build_identity.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/module.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

std::atomic<const Gpus*> replacement{nullptr};

std::string unloadable(const std::string& why) {
  return cat("the GPU module cannot be loaded: ", why);
}

Gpus find_gpus() {
#ifdef BELFRY_NO_GPU_MODULE
  return Gpus("this build has no GPU module (" BELFRY_NO_GPU_MODULE ")");
#else
  return Gpus::load(module_path("libbelfry_cuda.so"));
#endif
}

}  // namespace

Gpus::Gpus(const GpuBackend& backend) : backend_(&backend) {
  try {
    count_ = backend.count();
    if (count_ == 0) why_none_ = backend.why_none();
  } catch (const Error& error) {
    count_ = 0;
    why_none_ = error.what();
  }
}

Gpus Gpus::load(const std::string& path) {
  try {
    auto* const entry = reinterpret_cast<GpuModuleEntry*>(module_entry(path, kGpuModuleEntry));
    const char* own = "";
    if (const GpuBackend* const backend = entry(BELFRY_BUILD_IDENTITY, &own)) return Gpus(*backend);
    return Gpus(unloadable(cat(path, " is of another build (", own,
                               "; this is " BELFRY_BUILD_IDENTITY "); build both again")));
  } catch (const DeviceError& error) {
    return Gpus(unloadable(error.what()));
  }
}

void set_gpus(const Gpus* instead) { replacement.store(instead); }

const Gpus& gpus() {
  if (const Gpus* const instead = replacement.load()) return *instead;
  static const Gpus found = find_gpus();
  return found;
}

std::string why_no_gpu_devices(const Gpus& found) { return found.why_none(); }

}  // namespace belfry
