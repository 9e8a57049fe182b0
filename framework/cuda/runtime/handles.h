// Owners of handles of CUDA, cuDNN and cuBLASLt. Each frees its handle when it ends; .get() is the
// handle. `what` says in errors what the handle is for.
#pragma once
#include <memory>
#include <type_traits>

#include "belfry/framework/cuda/runtime/cuda_check.h"

namespace belfry::cuda {

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const noexcept {
    destroy(handle);  // a failure reports that an earlier call has failed, which was checked
  }
};

template <class Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using DeviceMemory = Owned<void*, cudaFree>;
using PinnedMemory = Owned<void*, cudaFreeHost>;
using CudnnHandle = Owned<cudnnHandle_t, cudnnDestroy>;
using TensorDescriptor = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using CublasLtHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;

// Makes a physical GPU the current one of this thread. Its end restores the previous GPU, if the
// thread had used one. Otherwise it does not: making a GPU current creates a context there, which
// takes memory.
class DeviceGuard {
 public:
  // Throws DeviceError if there is no such GPU.
  explicit DeviceGuard(int gpu);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;  // -1: none
};

// Handles of the current GPU. A stream waits for no other stream, not even the default one; an
// urgent one has the highest priority, others have the lowest. Only timers measure time.
Stream make_stream(std::string_view what, bool is_urgent = false);
Event make_event(std::string_view what);
Event make_timer(std::string_view what);
CudnnHandle make_cudnn(std::string_view what);
CublasLtHandle make_cublas_lt(std::string_view what);
// Null if there is not that much memory. Pinned memory is on the host, mapped into the addresses of
// every GPU.
DeviceMemory allocate(std::size_t bytes, std::string_view what);
PinnedMemory allocate_pinned(std::size_t bytes, std::string_view what);

}  // namespace belfry::cuda
