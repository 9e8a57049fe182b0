#include "belfry/framework/cuda/cudnn.h"

#include <limits>

#include "belfry/framework/cuda/cudnn_answers.h"

namespace belfry::cuda {
namespace {

using Kind = Convolution::Kind;

// The factors of what a call computes and of what was there: 1 and 0 in the type of sums.
struct Factors {
  explicit Factors(DType dtype) : doubles(dtype == DType::kF64) {}
  const void* one() const { return doubles ? static_cast<const void*>(&kOne64) : &kOne; }
  const void* zero() const { return doubles ? static_cast<const void*>(&kZero64) : &kZero; }

  bool doubles;
  static constexpr float kOne = 1, kZero = 0;
  static constexpr double kOne64 = 1, kZero64 = 0;
};

void check(cudnnStatus_t status, const Pooling& pooling, const Where& where) {
  if (status != CUDNN_STATUS_SUCCESS)
    fail(status, pooling.gradient ? "cudnnPoolingBackward" : "cudnnPoolingForward", where.str());
}

}  // namespace

void Cudnn::set_stream(cudaStream_t stream, const Where& where) {
  BELFRY_GPU_CALL(cudnnSetStream(handle_.get(), stream), where);
}

std::vector<ConvolutionAlgorithm> Cudnn::ranked(const Convolution& convolution,
                                                const Where& where) {
  return algorithms(convolution, false, where);
}

std::vector<ConvolutionAlgorithm> Cudnn::measured(const Convolution& convolution,
                                                  const Where& where) {
  return algorithms(convolution, true, where);
}

std::vector<ConvolutionAlgorithm> Cudnn::algorithms(const Convolution& convolution, bool measured,
                                                    const Where& where) {
  const ConvolutionDescriptors& d = described(convolution, where);
  const auto x = d.x.get(), y = d.y.get();
  const auto filter = d.filter.get();
  const auto windows = d.convolution.get();
  const auto handle = handle_.get();
  cudnnMathType_t math{};
  BELFRY_GPU_CALL(cudnnGetConvolutionMathType(windows, &math), where);
  switch (convolution.kind) {
    case Kind::kForward:
      return usable<cudnnConvolutionFwdAlgoPerf_t>(
          math,
          [&](int most, int* count, auto* answers) {
            const auto list = measured ? cudnnFindConvolutionForwardAlgorithm
                                       : cudnnGetConvolutionForwardAlgorithm_v7;
            return list(handle, x, filter, windows, y, most, count, answers);
          },
          [&](auto algorithm, std::size_t* bytes) {
            return cudnnGetConvolutionForwardWorkspaceSize(handle, x, filter, windows, y, algorithm,
                                                           bytes);
          },
          where);
    case Kind::kGradInput:
      return usable<cudnnConvolutionBwdDataAlgoPerf_t>(
          math,
          [&](int most, int* count, auto* answers) {
            const auto list = measured ? cudnnFindConvolutionBackwardDataAlgorithm
                                       : cudnnGetConvolutionBackwardDataAlgorithm_v7;
            return list(handle, filter, y, windows, x, most, count, answers);
          },
          [&](auto algorithm, std::size_t* bytes) {
            return cudnnGetConvolutionBackwardDataWorkspaceSize(handle, filter, y, windows, x,
                                                                algorithm, bytes);
          },
          where);
    case Kind::kGradFilter:
      return usable<cudnnConvolutionBwdFilterAlgoPerf_t>(
          math,
          [&](int most, int* count, auto* answers) {
            const auto list = measured ? cudnnFindConvolutionBackwardFilterAlgorithm
                                       : cudnnGetConvolutionBackwardFilterAlgorithm_v7;
            return list(handle, x, y, windows, filter, most, count, answers);
          },
          [&](auto algorithm, std::size_t* bytes) {
            return cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x, y, windows, filter,
                                                                  algorithm, bytes);
          },
          where);
  }
  return {};
}

const ConvolutionDescriptors& Cudnn::described(const Convolution& convolution, const Where& where) {
  auto found = convolutions_.find(convolution);
  if (found == convolutions_.end())
    found = convolutions_.emplace(convolution, describe(convolution, where)).first;
  return found->second;
}

void Cudnn::convolve(const ConvolutionCall& call, const Where& where) {
  const ConvolutionDescriptors& d = described(call.convolution, where);
  const Factors factors(call.convolution.dtype);
  const void *one = factors.one(), *zero = factors.zero();
  const auto handle = handle_.get();
  const auto x = d.x.get(), y = d.y.get();
  const auto filter = d.filter.get();
  const auto windows = d.convolution.get();
  const int number = call.algorithm.number;
  const auto bytes = static_cast<std::size_t>(call.algorithm.workspace_bytes);
  switch (call.convolution.kind) {
    case Kind::kForward:
      BELFRY_GPU_CALL(
          cudnnConvolutionForward(handle, one, x, call.first, filter, call.second, windows,
                                  static_cast<cudnnConvolutionFwdAlgo_t>(number), call.workspace,
                                  bytes, zero, y, call.out),
          where);
      return;
    case Kind::kGradInput:
      BELFRY_GPU_CALL(
          cudnnConvolutionBackwardData(handle, one, filter, call.second, y, call.first, windows,
                                       static_cast<cudnnConvolutionBwdDataAlgo_t>(number),
                                       call.workspace, bytes, zero, x, call.out),
          where);
      return;
    case Kind::kGradFilter:
      BELFRY_GPU_CALL(
          cudnnConvolutionBackwardFilter(handle, one, x, call.first, y, call.second, windows,
                                         static_cast<cudnnConvolutionBwdFilterAlgo_t>(number),
                                         call.workspace, bytes, zero, filter, call.out),
          where);
      return;
  }
}

cudnnStatus_t Cudnn::enqueue(const PoolingCall& call, const Where& where) {
  auto found = poolings_.find(call.pooling);
  if (found == poolings_.end())
    found = poolings_.emplace(call.pooling, describe(call.pooling, where)).first;
  const PoolingDescriptors& d = found->second;
  const Factors factors(call.pooling.dtype);
  const void *one = factors.one(), *zero = factors.zero();
  const auto handle = handle_.get();
  const auto windows = d.pooling.get();
  const auto x = d.x.get(), y = d.y.get();
  if (!call.pooling.gradient)
    return cudnnPoolingForward(handle, windows, one, x, call.in, zero, y, call.out);
  // The gradient of a mean does not depend on x and y, but they are not optional.
  return cudnnPoolingBackward(handle, windows, one, y, call.in, y, call.in, x, call.out, zero, x,
                              call.out);
}

bool Cudnn::pools(const Pooling& pooling, const Where& where) {
  if (!describable(pooling, where)) return false;
  const auto elements = [](const std::array<int, 4>& shape) {
    std::int64_t product = 1;
    for (const int size : shape) product *= size;
    return product;
  };
  if (elements(pooling.x) > std::numeric_limits<int>::max()) return false;
  Pooling one = pooling;
  one.x[0] = one.y[0] = 1;
  const auto bytes = [&](const std::array<int, 4>& shape) {
    return static_cast<std::size_t>(elements(shape)) * size_of(pooling.dtype);
  };
  const DeviceMemory x = allocate(bytes(one.x), where.str());
  const DeviceMemory y = allocate(bytes(one.y), where.str());
  require<OutOfMemory>(x && y, "no memory for an image of ", pooling, " ", where);
  const cudnnStatus_t status = enqueue({.pooling = one,
                                        .in = pooling.gradient ? y.get() : x.get(),
                                        .out = pooling.gradient ? x.get() : y.get()},
                                       where);
  if (refused(status)) return false;
  check(status, pooling, where);
  BELFRY_GPU_CALL(cudaDeviceSynchronize(), "after ", pooling, " ", where);
  return true;
}

void Cudnn::pool(const PoolingCall& call, const Where& where) {
  check(enqueue(call, where), call.pooling, where);
}

}  // namespace belfry::cuda
