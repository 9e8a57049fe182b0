// The functions of cuBLASLt and cuDNN that need a GPU. Descriptors are the libraries' own.
#include "belfry/tests/recorder/library_calls.h"

#include <algorithm>
#include <initializer_list>

#include <cublasLt.h>
#include <cudnn.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/recorder/library_handles.h"

using namespace belfry::recorder;
using belfry::cat;

namespace {

template <class Native>
void make_handle(Native* native, const char* library) {
  ++recorder().handles[library];
  *native = reinterpret_cast<Native>(new Handle{library, Recorder::current_gpu()});
}

template <class Native>
void end_handle(Native native, const char* function) {
  const Handle& handle = handle_of(native, function);
  --recorder().handles[handle.library];
  delete &handle;
}

cudnnMathType_t math_of(cudnnConvolutionDescriptor_t windows) {
  cudnnMathType_t math{};
  real<decltype(cudnnGetConvolutionMathType)>("cudnnGetConvolutionMathType")(windows, &math);
  return math;
}

const char* text_of(cudnnMathType_t math) {
  switch (math) {
    case CUDNN_DEFAULT_MATH: return kTf32;
    case CUDNN_FMA_MATH: return kExact;
    case CUDNN_TENSOR_OP_MATH: return kHalf;
    default: return "another type of math";
  }
}

// ", groups 2, dilation [3,3]"; "" if all are 1.
std::string taps_of(cudnnConvolutionDescriptor_t windows) {
  int groups = 0, down = 0, right = 0, rows = 0, columns = 0, vertical = 0, horizontal = 0;
  cudnnConvolutionMode_t mode{};
  cudnnDataType_t sums{};
  real<decltype(cudnnGetConvolutionGroupCount)>("cudnnGetConvolutionGroupCount")(windows, &groups);
  real<decltype(cudnnGetConvolution2dDescriptor)>("cudnnGetConvolution2dDescriptor")(
      windows, &down, &right, &rows, &columns, &vertical, &horizontal, &mode, &sums);
  if (groups == 1 && vertical == 1 && horizontal == 1) return "";
  return cat(", groups ", groups, ", dilation [", vertical, ",", horizontal, "]");
}

// Gives two answers for each convolution: the faster one gives other bits each time.
template <class Answer>
cudnnStatus_t answer(const char* function, cudnnConvolutionDescriptor_t windows, int most,
                     int* count, Answer* answers) {
  return recorder().call<cudnnStatus_t>(function, kInSteps | kInCaptures, [&] {
    *count = std::min(most, 2);
    for (int i = 0; i < *count; ++i) {
      answers[i] = {};
      answers[i].algo = static_cast<decltype(answers[i].algo)>(i == 0 ? kFast : kSteady);
      answers[i].determinism = i == 0 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
      answers[i].mathType = math_of(windows);
    }
    return CUDNN_STATUS_SUCCESS;
  });
}

constexpr std::size_t kConvolutionWorkspace = 4096, kProductWorkspace = 1024;

cudnnStatus_t tell_workspace(const char* function, std::size_t* bytes) {
  return recorder().call<cudnnStatus_t>(function, kInSteps | kInCaptures, [&] {
    *bytes = kConvolutionWorkspace;
    return CUDNN_STATUS_SUCCESS;
  });
}

// Handles of an AlgorithmSource have no stream; they compute to find algorithms.
bool asks(const Handle& handle) { return !handle.stream && Recorder::captures == 0; }

cudnnStatus_t convolve(const char* function, cudnnHandle_t handle,
                       cudnnConvolutionDescriptor_t windows, int algorithm, void* workspace,
                       std::size_t bytes, std::initializer_list<const void*> tensors) {
  return recorder().call<cudnnStatus_t>(function, kNowhere, [&] {
    const Handle& by = handle_of(handle, function);
    if (bytes < kConvolutionWorkspace) return CUDNN_STATUS_BAD_PARAM;
    const auto* const t = tensors.begin();
    return asks(by) || enqueue(by.stream, function,
                               cat(text_of(math_of(windows)), taps_of(windows), ", algorithm ",
                                   algorithm),
                               {{t[0]}, {t[1]}, {t[2]}, {workspace, bytes, 256}})
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_MAPPING_ERROR;
  });
}

cudnnStatus_t pool(const char* function, cudnnHandle_t handle, const void* from, const void* to) {
  return recorder().call<cudnnStatus_t>(function, kNowhere, [&] {
    const Handle& by = handle_of(handle, function);
    return asks(by) || enqueue(by.stream, function, "", {{from}, {to}})
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_MAPPING_ERROR;
  });
}

const char* text_of(cublasComputeType_t type) {
  switch (type) {
    case CUBLAS_COMPUTE_32F: return kExact;
    case CUBLAS_COMPUTE_32F_FAST_TF32: return kTf32;
    default: return "another type of math";
  }
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return recorder().call<cublasStatus_t>("cublasLtCreate", kInSteps | kInCaptures, [&] {
    make_handle(handle, "handles of cuBLASLt");
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return recorder().call<cublasStatus_t>("cublasLtDestroy", kInSteps | kFrees | kInCaptures, [&] {
    end_handle(handle, "cublasLtDestroy");
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  constexpr const char* kName = "cublasLtMatmulAlgoGetHeuristic";
  return recorder().call<cublasStatus_t>(kName, kInSteps | kInCaptures, [&] {
    handle_of(handle, kName);
    results[0] = {};
    results[0].workspaceSize = kProductWorkspace;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void*,
                              const void* a, cublasLtMatrixLayout_t, const void* b,
                              cublasLtMatrixLayout_t, const void*, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t*, void* workspace, std::size_t bytes,
                              cudaStream_t stream) {
  return recorder().call<cublasStatus_t>("cublasLtMatmul", kNowhere, [&] {
    handle_of(handle, "cublasLtMatmul");
    cublasComputeType_t type{};
    std::size_t written = 0;
    real<decltype(cublasLtMatmulDescGetAttribute)>("cublasLtMatmulDescGetAttribute")(
        product, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &type, sizeof type, &written);
    if (c != d || bytes < kProductWorkspace) return CUBLAS_STATUS_INVALID_VALUE;
    return enqueue(stream, "cublasLtMatmul", text_of(type),
                   {{a, 1, 64}, {b, 1, 64}, {d, 1, 64}, {workspace, bytes, 256}})
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
  });
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return recorder().call<cudnnStatus_t>("cudnnCreate", kInSteps | kInCaptures, [&] {
    make_handle(handle, "handles of cuDNN");
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return recorder().call<cudnnStatus_t>("cudnnDestroy", kInSteps | kFrees | kInCaptures, [&] {
    end_handle(handle, "cudnnDestroy");
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return recorder().call<cudnnStatus_t>("cudnnSetStream", kNowhere, [&] {
    if (!recorder().stream_of(stream, "cudnnSetStream")) return CUDNN_STATUS_MAPPING_ERROR;
    handle_of(handle, "cudnnSetStream").stream = stream;
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                   const cudnnFilterDescriptor_t,
                                                   const cudnnConvolutionDescriptor_t windows,
                                                   const cudnnTensorDescriptor_t, const int most,
                                                   int* count,
                                                   cudnnConvolutionFwdAlgoPerf_t* answers) {
  return answer("cudnnFindConvolutionForwardAlgorithm", windows, most, count, answers);
}
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                     const cudnnFilterDescriptor_t,
                                                     const cudnnConvolutionDescriptor_t windows,
                                                     const cudnnTensorDescriptor_t, const int most,
                                                     int* count,
                                                     cudnnConvolutionFwdAlgoPerf_t* answers) {
  return answer("cudnnGetConvolutionForwardAlgorithm_v7", windows, most, count, answers);
}
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(
    cudnnHandle_t, const cudnnFilterDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnConvolutionDescriptor_t windows, const cudnnTensorDescriptor_t, const int most,
    int* count, cudnnConvolutionBwdDataAlgoPerf_t* answers) {
  return answer("cudnnFindConvolutionBackwardDataAlgorithm", windows, most, count, answers);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, const cudnnFilterDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnConvolutionDescriptor_t windows, const cudnnTensorDescriptor_t, const int most,
    int* count, cudnnConvolutionBwdDataAlgoPerf_t* answers) {
  return answer("cudnnGetConvolutionBackwardDataAlgorithm_v7", windows, most, count, answers);
}
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithm(
    cudnnHandle_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnConvolutionDescriptor_t windows, const cudnnFilterDescriptor_t, const int most,
    int* count, cudnnConvolutionBwdFilterAlgoPerf_t* answers) {
  return answer("cudnnFindConvolutionBackwardFilterAlgorithm", windows, most, count, answers);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnConvolutionDescriptor_t windows, const cudnnFilterDescriptor_t, const int most,
    int* count, cudnnConvolutionBwdFilterAlgoPerf_t* answers) {
  return answer("cudnnGetConvolutionBackwardFilterAlgorithm_v7", windows, most, count, answers);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                      const cudnnFilterDescriptor_t,
                                                      const cudnnConvolutionDescriptor_t,
                                                      const cudnnTensorDescriptor_t,
                                                      cudnnConvolutionFwdAlgo_t,
                                                      std::size_t* bytes) {
  return tell_workspace("cudnnGetConvolutionForwardWorkspaceSize", bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, const cudnnFilterDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnConvolutionDescriptor_t, const cudnnTensorDescriptor_t,
    cudnnConvolutionBwdDataAlgo_t, std::size_t* bytes) {
  return tell_workspace("cudnnGetConvolutionBackwardDataWorkspaceSize", bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnConvolutionDescriptor_t, const cudnnFilterDescriptor_t,
    cudnnConvolutionBwdFilterAlgo_t, std::size_t* bytes) {
  return tell_workspace("cudnnGetConvolutionBackwardFilterWorkspaceSize", bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void*,
                                      const cudnnTensorDescriptor_t, const void* x,
                                      const cudnnFilterDescriptor_t, const void* w,
                                      const cudnnConvolutionDescriptor_t windows,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      std::size_t bytes, const void*, const cudnnTensorDescriptor_t,
                                      void* y) {
  return convolve("cudnnConvolutionForward", handle, windows, algorithm, workspace, bytes,
                  {x, w, y});
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void*,
                                           const cudnnFilterDescriptor_t, const void* w,
                                           const cudnnTensorDescriptor_t, const void* dy,
                                           const cudnnConvolutionDescriptor_t windows,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           std::size_t bytes, const void*,
                                           const cudnnTensorDescriptor_t, void* dx) {
  return convolve("cudnnConvolutionBackwardData", handle, windows, algorithm, workspace, bytes,
                  {w, dy, dx});
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void*,
                                             const cudnnTensorDescriptor_t, const void* x,
                                             const cudnnTensorDescriptor_t, const void* dy,
                                             const cudnnConvolutionDescriptor_t windows,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void* workspace, std::size_t bytes, const void*,
                                             const cudnnFilterDescriptor_t, void* dw) {
  return convolve("cudnnConvolutionBackwardFilter", handle, windows, algorithm, workspace, bytes,
                  {x, dy, dw});
}

cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t, const void*,
                                  const cudnnTensorDescriptor_t, const void* x, const void*,
                                  const cudnnTensorDescriptor_t, void* y) {
  return pool("cudnnPoolingForward", handle, x, y);
}
cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t,
                                   const void*, const cudnnTensorDescriptor_t, const void*,
                                   const cudnnTensorDescriptor_t, const void* dy,
                                   const cudnnTensorDescriptor_t, const void*, const void*,
                                   const cudnnTensorDescriptor_t, void* dx) {
  return pool("cudnnPoolingBackward", handle, dy, dx);
}

}  // extern "C"
