// Handles of cuBLASLt and cuDNN, and the work that these libraries enqueue.
#pragma once
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/recorder/recorder.h"

namespace belfry::recorder {

// A handle of either library.
struct Handle {
  const char* library;
  int gpu;
  cudaStream_t stream = nullptr;  // of cuDNN
  const void* saved = nullptr;    // what the last gradient of a recurrence has been given
};

// The function of a library that the module has loaded.
template <class Function>
Function* real(const char* name) {
  static void* const module = dlopen("libbelfry_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function*>(dlsym(module, name));
}

template <class Native>
Handle& handle_of(Native native, const char* function) {
  auto& handle = *reinterpret_cast<Handle*>(native);
  if (handle.gpu != Recorder::current_gpu())
    recorder().violate(cat(function, " with a handle of GPU ", handle.gpu, " while GPU ",
                           Recorder::current_gpu(), " is current"));
  return handle;
}

// Memory that is given to a library, and the alignment that its address must have.
struct Given {
  const void* address;
  std::size_t bytes = 1, alignment = 16;
};

// False if there is no such stream.
inline bool enqueue(cudaStream_t stream, const char* function, std::string detail,
                    const std::vector<Given>& given) {
  Stream* const found = recorder().stream_of(stream, function);
  if (!found) return false;
  for (const Given& of : given) {
    if (of.bytes == 0) continue;
    recorder().check_reach(of.address, of.bytes, found->gpu, function);
    if (reinterpret_cast<std::uintptr_t>(of.address) % of.alignment != 0)
      recorder().violate(cat(function, " is given memory that is not aligned"));
  }
  Work work{function};
  if (recorder().spoiled == function)
    work.act = [given] {
      for (const Given& of : given) std::memset(recorder().find_behind(of.address), 1, of.bytes);
    };
  recorder().enqueue(*found, std::move(work), {.name = function, .detail = std::move(detail)});
  return true;
}

}  // namespace belfry::recorder
