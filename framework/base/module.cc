#include "belfry/framework/base/module.h"

#include <filesystem>

#include <dlfcn.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"

namespace belfry {

std::string module_path(const std::string& name) {
  static const char here = 0;
  Dl_info library{};
  if (dladdr(&here, &library) == 0 || library.dli_fname == nullptr) return name;
  const auto path = std::filesystem::path(library.dli_fname).parent_path() / name;
  std::error_code failed;
  return std::filesystem::exists(path, failed) ? std::filesystem::absolute(path).string() : name;
}

void* module_entry(const std::string& path, const char* entry) {
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module) {
    const char* const why = dlerror();
    throw DeviceError(why ? why : cat(path, ": unknown error"));
  }
  if (void* const found = dlsym(module, entry)) return found;
  dlclose(module);
  throw DeviceError(cat(path, " is another library: it has no ", entry));
}

}  // namespace belfry
