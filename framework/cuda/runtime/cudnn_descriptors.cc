#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/runtime/cudnn.h"

namespace belfry::cuda {
namespace {

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return CUDNN_DATA_FLOAT;
    case DType::kF64: return CUDNN_DATA_DOUBLE;
    case DType::kF16: return CUDNN_DATA_HALF;
    case DType::kBF16: return CUDNN_DATA_BFLOAT16;
    default: throw InternalError(cat("cuDNN computes nothing in ", name_of(dtype)));
  }
}

cudnnMathType_t math_type(const Convolution& convolution) {
  if (size_of(convolution.dtype) == 2) return CUDNN_TENSOR_OP_MATH;
  return convolution.compute == Compute::kTf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

TensorDescriptor describe_tensor(const std::array<int, 4>& nhwc, DType dtype, const Where& where) {
  cudnnTensorDescriptor_t handle = nullptr;
  BELFRY_GPU_CALL(cudnnCreateTensorDescriptor(&handle), where);
  TensorDescriptor tensor(handle);
  BELFRY_GPU_CALL(cudnnSetTensor4dDescriptor(handle, CUDNN_TENSOR_NHWC, data_type(dtype), nhwc[0],
                                             nhwc[3], nhwc[1], nhwc[2]),
                  where);
  return tensor;
}

FilterDescriptor describe_filter(const Convolution& convolution, const Where& where) {
  const auto& ohwi = convolution.filter;
  cudnnFilterDescriptor_t handle = nullptr;
  BELFRY_GPU_CALL(cudnnCreateFilterDescriptor(&handle), where);
  FilterDescriptor filter(handle);
  BELFRY_GPU_CALL(cudnnSetFilter4dDescriptor(handle, data_type(convolution.dtype),
                                             CUDNN_TENSOR_NHWC, ohwi[0], ohwi[3], ohwi[1], ohwi[2]),
                  where);
  return filter;
}

ConvolutionDescriptor describe_windows(const Convolution& convolution, const Where& where) {
  const auto [down, right] = convolution.padding;
  const auto [vertical, horizontal] = convolution.stride;
  const auto [between_rows, between_columns] = convolution.dilation;
  cudnnConvolutionDescriptor_t handle = nullptr;
  BELFRY_GPU_CALL(cudnnCreateConvolutionDescriptor(&handle), where);
  ConvolutionDescriptor windows(handle);
  const auto sums = convolution.dtype == DType::kF64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  BELFRY_GPU_CALL(
      cudnnSetConvolution2dDescriptor(handle, down, right, vertical, horizontal, between_rows,
                                      between_columns, CUDNN_CROSS_CORRELATION, sums),
      where);
  BELFRY_GPU_CALL(cudnnSetConvolutionGroupCount(handle, convolution.groups), where);
  BELFRY_GPU_CALL(cudnnSetConvolutionMathType(handle, math_type(convolution)), where);
  return windows;
}

PoolingDescriptor describe_windows(const Pooling& pooling, const Where& where) {
  cudnnPoolingDescriptor_t handle = nullptr;
  BELFRY_GPU_CALL(cudnnCreatePoolingDescriptor(&handle), where);
  PoolingDescriptor windows(handle);
  BELFRY_GPU_CALL(cudnnSetPooling2dDescriptor(
                      handle, CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, CUDNN_PROPAGATE_NAN,
                      pooling.window[0], pooling.window[1], pooling.padding[0], pooling.padding[1],
                      pooling.stride[0], pooling.stride[1]),
                  where);
  return windows;
}

}  // namespace

ConvolutionDescriptors describe(const Convolution& convolution, const Where& where) {
  return {.x = describe_tensor(convolution.x, convolution.dtype, where),
          .y = describe_tensor(convolution.y, convolution.dtype, where),
          .filter = describe_filter(convolution, where),
          .convolution = describe_windows(convolution, where)};
}

PoolingDescriptors describe(const Pooling& pooling, const Where& where) {
  return {.x = describe_tensor(pooling.x, pooling.dtype, where),
          .y = describe_tensor(pooling.y, pooling.dtype, where),
          .pooling = describe_windows(pooling, where)};
}

std::array<int, 4> output_shape(const ConvolutionDescriptors& of, const Where& where) {
  std::array<int, 4> y{};
  BELFRY_GPU_CALL(
      cudnnGetConvolution2dForwardOutputDim(of.convolution.get(), of.x.get(), of.filter.get(),
                                            &y[0], &y[3], &y[1], &y[2]),
      where);
  return y;
}

std::array<int, 4> output_shape(const PoolingDescriptors& of, const Where& where) {
  std::array<int, 4> y{};
  BELFRY_GPU_CALL(
      cudnnGetPooling2dForwardOutputDim(of.pooling.get(), of.x.get(), &y[0], &y[3], &y[1], &y[2]),
      where);
  return y;
}

bool describable(const Pooling& pooling, const Where& where) try {
  return output_shape(describe(pooling, where), where) == pooling.y;
} catch (const DeviceError&) {
  return false;
}

}  // namespace belfry::cuda
