#include "belfry/framework/cuda/runtime/nccl_library.h"

#include <cstdlib>
#include <filesystem>

#include <dlfcn.h>

#include "belfry/framework/base/text.h"

namespace belfry::cuda {
namespace {

constexpr const char* kFile = "libnccl.so.2";
// The first version that splits communicators.
constexpr int kOldest = 21800;

NcclLibrary absent(std::string why) {
  NcclLibrary none;
  none.why_not = std::move(why);
  return none;
}

std::vector<std::string> places() {
  std::vector<std::string> paths = {kFile};
  Dl_info runtime{};
  if (dladdr(reinterpret_cast<const void*>(&cudaGetDeviceCount), &runtime) == 0) return paths;
  const auto folder = std::filesystem::path(runtime.dli_fname).parent_path();
  for (const auto& path : {folder / kFile, folder / "../../nccl/lib" / kFile}) {
    std::error_code failed;
    if (std::filesystem::exists(path, failed)) paths.push_back(path);
  }
  return paths;
}

}  // namespace

NcclLibrary open_nccl(const std::vector<std::string>& paths) {
  void* file = nullptr;
  std::string why;
  for (const std::string& path : paths) {
    file = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (file) break;
    if (why.empty()) why = cat("NCCL cannot be loaded: ", dlerror());
  }
  if (!file) return absent(why);
  NcclLibrary nccl;
  std::string missing;
#define BELFRY_NCCL_LOAD(call)                                           \
  nccl.call = reinterpret_cast<decltype(nccl.call)>(dlsym(file, #call)); \
  if (!nccl.call) missing = #call;
  BELFRY_NCCL_CALLS(BELFRY_NCCL_LOAD)
#undef BELFRY_NCCL_LOAD
  if (nccl.ncclGetVersion && nccl.ncclGetVersion(&nccl.version) != ncclSuccess) nccl.version = 0;
  if (missing.empty() && nccl.version >= kOldest) return nccl;
  dlclose(file);
  return absent(missing.empty() ? cat("NCCL is of version ", nccl.version,
                                      "; 21800 (2.18) is the "
                                      "oldest that serves")
                                : cat("NCCL cannot be used: it has no ", missing));
}

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = [] {
    // Ranks connect when communicators are made, while they are watched, and not at the first sum.
    ::setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    return open_nccl(places());
  }();
  return library;
}

bool serves_several_ranks(int version) {
  constexpr int kOldestThatDoes = 23000;
  const char* const enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return version >= kOldestThatDoes && enabled && std::string_view(enabled) == "1";
}

void fail(ncclResult_t status, std::string_view call, const std::string& context) {
  fail(nccl_library(), status, call, context);
}

void fail(const NcclLibrary& nccl, ncclResult_t status, std::string_view call,
          const std::string& context) {
  if (status == ncclInProgress) return;
  std::string text = nccl.version > 0 ? nccl.ncclGetErrorString(status) : "NCCL error";
  text += cat(" (", static_cast<int>(status), ")");
  const char* const details = nccl.version > 0 ? nccl.ncclGetLastError(nullptr) : nullptr;
  if (details && details[0] != '\0') text += cat(": ", details);
  throw CommError(cat(call, " failed: ", text, ", ", context));
}

}  // namespace belfry::cuda
