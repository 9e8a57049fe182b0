// CUDA's functions for GPUs and their memory.
#include <cstring>

#include <sys/mman.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/recorder/recorder.h"

using namespace belfry::recorder;
using belfry::cat;

namespace {

// The addresses of a GPU's memory: the host must not touch them.
void* addresses(std::size_t bytes) {
  constexpr std::size_t kMostAligned = 512;
  void* const at = mmap(nullptr, bytes + kMostAligned, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

void* host_memory(std::size_t bytes) {
  constexpr std::size_t kLine = 512;
  const std::size_t whole = (bytes + kLine - 1) / kLine * kLine;
  void* const memory = std::aligned_alloc(kLine, whole);
  if (memory) std::memset(memory, 0, whole);
  return memory;
}

bool is_gpu(int gpu) { return gpu >= 0 && gpu < Recorder::kGpus; }

int current_context(void** context) {
  *context = Recorder::current < 0 ? nullptr : &Recorder::current;
  return 0;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return recorder().call<cudaError_t>("cudaGetDeviceCount", kNowhere, [&] {
    *count = Recorder::kGpus;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int gpu) {
  return recorder().call<cudaError_t>("cudaGetDeviceProperties", kInSteps, [&] {
    if (!is_gpu(gpu)) return cudaErrorInvalidDevice;
    *properties = {};
    std::strcpy(properties->name, "Recorder");
    properties->totalGlobalMem = std::size_t{8} << 30;
    properties->major = 9;
    properties->pciBusID = 0x18 + gpu;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return recorder().call<cudaError_t>("cudaFuncGetAttributes", kInSteps, [&] {
    *attributes = {};
    return recorder().kernels.contains(function) ? cudaSuccess : cudaErrorInvalidDeviceFunction;
  });
}

cudaError_t cudaGetDevice(int* gpu) {
  return recorder().call<cudaError_t>("cudaGetDevice", kNowhere, [&] {
    *gpu = Recorder::current_gpu();
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int gpu) {
  return recorder().call<cudaError_t>("cudaSetDevice", kNowhere, [&] {
    if (!is_gpu(gpu)) return cudaErrorInvalidDevice;
    Recorder::current = gpu;
    recorder().contexts.insert(gpu);
    return cudaSuccess;
  });
}

// The module asks for one function, cuCtxGetCurrent.
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
#else
cudaError_t cudaGetDriverEntryPoint(const char*, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
#endif
  *function = reinterpret_cast<void*>(&current_context);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t last = Recorder::last_error;
  Recorder::last_error = cudaSuccess;
  return last;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int gpu, int peer) {
  return recorder().call<cudaError_t>("cudaDeviceCanAccessPeer", kInSteps, [&] {
    *can = gpu != peer && recorder().peers_reach;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return recorder().call<cudaError_t>("cudaDeviceEnablePeerAccess", kInSteps | kInCaptures, [&] {
    const int gpu = Recorder::current_gpu();
    if (gpu == peer || !is_gpu(peer)) return cudaErrorInvalidDevice;
    if (!recorder().peers_reach) return cudaErrorPeerAccessUnsupported;
    return recorder().peers.emplace(gpu, peer).second ? cudaSuccess
                                                      : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return recorder().call<cudaError_t>("cudaDeviceSynchronize", kInSteps | kInCaptures,
                                      [&] { return cudaSuccess; });
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return recorder().call<cudaError_t>("cudaMalloc", kInSteps | kInCaptures, [&] {
    void* const at = addresses(bytes);
    void* const behind = host_memory(bytes);
    if (!at || !behind) return cudaErrorMemoryAllocation;
    recorder().memory[reinterpret_cast<std::uintptr_t>(at)] = {Recorder::current_gpu(), bytes, 0,
                                                               static_cast<std::byte*>(behind)};
    *memory = at;
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* memory) {
  if (!memory) return cudaSuccess;
  return recorder().call<cudaError_t>("cudaFree", kInSteps | kFrees | kInCaptures, [&] {
    const auto found = recorder().memory.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == recorder().memory.end() || found->second.gpu < 0) {
      recorder().violate("cudaFree of what cudaMalloc did not give");
      return cudaErrorInvalidValue;
    }
    munmap(memory, found->second.bytes + 512);
    std::free(found->second.behind);
    recorder().memory.erase(found);
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  return recorder().call<cudaError_t>("cudaHostAlloc", kInSteps | kInCaptures, [&] {
    void* const at = host_memory(bytes);
    if (!at) return cudaErrorMemoryAllocation;
    recorder().memory[reinterpret_cast<std::uintptr_t>(at)] = {-1, bytes, flags,
                                                               static_cast<std::byte*>(at)};
    *memory = at;
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  if (!memory) return cudaSuccess;
  return recorder().call<cudaError_t>("cudaFreeHost", kInSteps | kFrees | kInCaptures, [&] {
    const auto found = recorder().memory.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == recorder().memory.end() || found->second.gpu >= 0) {
      recorder().violate("cudaFreeHost of what cudaHostAlloc did not give");
      return cudaErrorInvalidValue;
    }
    std::free(memory);
    recorder().memory.erase(found);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return recorder().call<cudaError_t>("cudaPointerGetAttributes", kInSteps, [&] {
    const Allocation* const of = recorder().allocation_of(address);
    recorder().contexts.insert(Recorder::current_gpu());
    *attributes = {};
    attributes->type = !of           ? cudaMemoryTypeUnregistered
                       : of->gpu < 0 ? cudaMemoryTypeHost
                                     : cudaMemoryTypeDevice;
    attributes->device = of ? std::max(of->gpu, 0) : -2;
    return cudaSuccess;
  });
}

}  // extern "C"
