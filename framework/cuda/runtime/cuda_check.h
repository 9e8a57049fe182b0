// Checked calls of CUDA, cuDNN and cuBLASLt:
//   BELFRY_GPU_CALL(cudaMalloc(&memory, bytes), "for the arena of ", device);
// throws, if the call fails,
//   DeviceError: cudaMalloc failed: out of memory (cudaErrorMemoryAllocation, 2), for the arena of
//   ...
// Calls of NCCL throw CommError (nccl_library.h).
#pragma once
#include <string>
#include <string_view>
#include <type_traits>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"

namespace belfry::cuda {

// The library's text for a status: "out of memory (cudaErrorMemoryAllocation, 2)".
std::string status_text(cudaError_t status);
std::string status_text(cublasStatus_t status);
std::string status_text(cudnnStatus_t status);

// Clears the details of cuDNN's last error on this thread, which cuDNN keeps until they are read.
// Call it before a call that returns a Status, so that its error does not show old details.
template <class Status>
void forget_details() {
  char details[1];
  if constexpr (std::is_same_v<Status, cudnnStatus_t>)
    cudnnGetLastErrorString(details, sizeof details);
}

// 91900 is 9.19.0 of cuDNN, 130100 is 13.1.0 of cuBLASLt.
std::string version_text(std::size_t version);

// "cudaMalloc" of "api.cudaMalloc(&memory, bytes)".
std::string_view called(std::string_view expression);

// Throws DeviceError. The error that CUDA keeps is cleared, unless it has ended the context.
[[noreturn]] void fail(cudaError_t status, std::string_view call, const std::string& context);
[[noreturn]] void fail(cublasStatus_t status, std::string_view call, const std::string& context);
[[noreturn]] void fail(cudnnStatus_t status, std::string_view call, const std::string& context);

}  // namespace belfry::cuda

// The arguments after the call say what it was for; they are evaluated only if it fails.
#define BELFRY_GPU_CALL(call, ...)                                                     \
  do {                                                                                 \
    ::belfry::cuda::forget_details<decltype(call)>();                                  \
    if (const auto belfry_status = (call); belfry_status != decltype(belfry_status){}) \
        [[unlikely]]                                                                   \
      ::belfry::cuda::fail(belfry_status, ::belfry::cuda::called(#call),               \
                           ::belfry::cat(__VA_ARGS__));                                \
  } while (false)
