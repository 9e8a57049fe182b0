#include "belfry/framework/device/gpus.h"

#include <atomic>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <belfry_build_identity.h>
#include <dlfcn.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/module.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/gpu_kernels.h"

namespace belfry {
namespace {

std::atomic<const Gpus*> replacement{nullptr};

std::string unloadable(const std::string& why) {
  return cat("the GPU module cannot be loaded: ", why);
}

// The libraries of kernels outside the tree.
std::map<const GpuKernelsRegistration*, std::string>& kernel_libraries() {
  static auto& all = *new std::map<const GpuKernelsRegistration*, std::string>;
  return all;
}

// The path of a file beside the program or library that has the object, or its name alone. The
// linker may know a program by a name without a folder, which says nothing: /proc does.
std::string beside(const void* object, const std::string& file) {
  Dl_info owner{};
  std::error_code failed;
  std::vector<std::filesystem::path> binaries;
  if (dladdr(object, &owner) != 0 && owner.dli_fname) binaries.emplace_back(owner.dli_fname);
  binaries.push_back(std::filesystem::read_symlink("/proc/self/exe", failed));
  for (const std::filesystem::path& binary : binaries)
    if (const auto path = binary.parent_path() / file;
        binary.has_parent_path() && std::filesystem::exists(path, failed))
      return std::filesystem::absolute(path, failed).string();
  return file;
}

// Why kernels outside the tree cannot be used; "" if they can.
std::string load_kernels() {
  for (const auto& [registration, path] : kernel_libraries()) {
    try {
      auto* const entry = reinterpret_cast<GpuKernelsEntry*>(module_entry(path, kGpuKernelsEntry));
      if (const std::string_view own = entry(); own != BELFRY_BUILD_IDENTITY)
        return cat("the GPU kernels in ", path, " are for another build of Belfry (", own,
                   "; this is " BELFRY_BUILD_IDENTITY "); build the program again");
    } catch (const DeviceError& error) {
      return cat("the program's GPU kernels cannot be loaded: ", error.what());
    }
  }
  return "";
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
    if (const GpuBackend* const backend = entry(BELFRY_BUILD_IDENTITY, &own)) {
      std::string why_not = load_kernels();
      return why_not.empty() ? Gpus(*backend) : Gpus(std::move(why_not));
    }
    return Gpus(unloadable(cat(path, " is of another build (", own,
                               "; this is " BELFRY_BUILD_IDENTITY "); build both again")));
  } catch (const DeviceError& error) {
    return Gpus(unloadable(error.what()));
  }
}

GpuKernelsRegistration::GpuKernelsRegistration(const std::string& file) {
  kernel_libraries()[this] = file.find('/') != file.npos ? file : beside(this, file);
}
GpuKernelsRegistration::~GpuKernelsRegistration() { kernel_libraries().erase(this); }

void set_gpus(const Gpus* instead) { replacement.store(instead); }

const Gpus& gpus() {
  if (const Gpus* const instead = replacement.load()) return *instead;
  static const Gpus found = find_gpus();
  return found;
}

std::string why_no_gpu_devices(const Gpus& found) { return found.why_none(); }

}  // namespace belfry
