#include "belfry/framework/cuda/handles.h"

namespace belfry::cuda {

DeviceGuard::DeviceGuard(int gpu) {
  BELFRY_GPU_CALL(cudaGetDevice(&before_), "to go to GPU ", gpu);
  BELFRY_GPU_CALL(cudaSetDevice(gpu), "to go to GPU ", gpu);
}

DeviceGuard::~DeviceGuard() { cudaSetDevice(before_); }

Stream make_stream(std::string_view what) {
  cudaStream_t stream = nullptr;
  BELFRY_GPU_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), what);
  return Stream(stream);
}

Event make_event(std::string_view what) {
  cudaEvent_t event = nullptr;
  BELFRY_GPU_CALL(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), what);
  return Event(event);
}

DeviceMemory allocate(std::size_t bytes, std::string_view what) {
  void* memory = nullptr;
  BELFRY_GPU_CALL(cudaMalloc(&memory, bytes), bytes, " bytes ", what);
  return DeviceMemory(memory);
}

CudnnHandle make_cudnn(std::string_view what) {
  cudnnHandle_t handle = nullptr;
  BELFRY_GPU_CALL(cudnnCreate(&handle), what);
  return CudnnHandle(handle);
}

CublasLtHandle make_cublas_lt(std::string_view what) {
  cublasLtHandle_t handle = nullptr;
  BELFRY_GPU_CALL(cublasLtCreate(&handle), what);
  return CublasLtHandle(handle);
}

PinnedMemory allocate_pinned(std::size_t bytes, std::string_view what) {
  void* memory = nullptr;
  BELFRY_GPU_CALL(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped), bytes,
                  " bytes ", what);
  return PinnedMemory(memory);
}

TensorDescriptor describe_tensor(std::span<const int, 4> nhwc, std::string_view what) {
  cudnnTensorDescriptor_t handle = nullptr;
  BELFRY_GPU_CALL(cudnnCreateTensorDescriptor(&handle), what);
  TensorDescriptor tensor(handle);
  BELFRY_GPU_CALL(cudnnSetTensor4dDescriptor(handle, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, nhwc[0],
                                             nhwc[3], nhwc[1], nhwc[2]),
                  what);
  return tensor;
}

FilterDescriptor describe_filter(std::span<const int, 4> ohwi, std::string_view what) {
  cudnnFilterDescriptor_t handle = nullptr;
  BELFRY_GPU_CALL(cudnnCreateFilterDescriptor(&handle), what);
  FilterDescriptor filter(handle);
  BELFRY_GPU_CALL(cudnnSetFilter4dDescriptor(handle, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, ohwi[0],
                                             ohwi[3], ohwi[1], ohwi[2]),
                  what);
  return filter;
}

ConvolutionDescriptor describe_convolution(std::span<const int, 2> padding,
                                           std::span<const int, 2> stride, std::string_view what) {
  cudnnConvolutionDescriptor_t handle = nullptr;
  BELFRY_GPU_CALL(cudnnCreateConvolutionDescriptor(&handle), what);
  ConvolutionDescriptor convolution(handle);
  BELFRY_GPU_CALL(
      cudnnSetConvolution2dDescriptor(handle, padding[0], padding[1], stride[0], stride[1], 1, 1,
                                      CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
      what);
  BELFRY_GPU_CALL(cudnnSetConvolutionMathType(handle, CUDNN_FMA_MATH), what);
  return convolution;
}

}  // namespace belfry::cuda
