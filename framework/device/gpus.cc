#include "belfry/framework/device/gpus.h"

#include <atomic>
#include <filesystem>

#include <belfry_build_identity.h>
#include <dlfcn.h>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace {

constexpr const char* kModule = "libbelfry_cuda.so";

std::atomic<const Gpus*> replacement{nullptr};

std::string unloadable(const char* why) {
  return cat("the GPU module cannot be loaded: ", why ? why : "unknown error");
}

// Beside the library that this function is in, if there is such a file.
[[maybe_unused]] std::string module_path() {
  Dl_info library{};
  if (dladdr(kModule, &library) == 0 || library.dli_fname == nullptr) return kModule;
  const auto path = std::filesystem::path(library.dli_fname).parent_path() / kModule;
  std::error_code failed;
  return std::filesystem::exists(path, failed) ? std::filesystem::absolute(path).string() : kModule;
}

Gpus find_gpus() {
#ifdef BELFRY_NO_GPU_MODULE
  return Gpus("this build has no GPU module (" BELFRY_NO_GPU_MODULE ")");
#else
  return Gpus::load(module_path());
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
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module) return Gpus(unloadable(dlerror()));
  const auto entry = reinterpret_cast<GpuModuleEntry*>(dlsym(module, kGpuModuleEntry));
  const char* own = "";
  const GpuBackend* const backend = entry ? entry(BELFRY_BUILD_IDENTITY, &own) : nullptr;
  if (backend) return Gpus(*backend);
  const std::string why = entry ? cat("is of another build (", own,
                                      "; this is " BELFRY_BUILD_IDENTITY "); build both again")
                                : cat("is no GPU module: it has no ", kGpuModuleEntry);
  dlclose(module);
  return Gpus(unloadable(cat(path, " ", why).c_str()));
}

void set_gpus(const Gpus* instead) { replacement.store(instead); }

const Gpus& gpus() {
  if (const Gpus* const instead = replacement.load()) return *instead;
  static const Gpus found = find_gpus();
  return found;
}

std::string why_no_gpu_devices(const Gpus& found) { return found.why_none(); }

}  // namespace belfry
