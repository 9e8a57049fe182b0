#include "belfry/framework/cuda/runtime/cudnn.h"

#include <limits>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/cuda/runtime/cudnn_answers.h"

namespace belfry::cuda {
namespace {

using Kind = Convolution::Kind;

// The factors of a call's result, 1, and of the old output, 0, in the type of sums.
struct Factors {
  explicit Factors(DType dtype) : doubles(dtype == DType::kF64) {}
  const void* one() const { return doubles ? static_cast<const void*>(&kOne64) : &kOne; }
  const void* zero() const { return doubles ? static_cast<const void*>(&kZero64) : &kZero; }

  bool doubles;
  static constexpr float kOne = 1, kZero = 0;
  static constexpr double kOne64 = 1, kZero64 = 0;
};

const char* call_of(const Convolution& convolution) {
  switch (convolution.kind) {
    case Kind::kForward: return "cudnnConvolutionForward";
    case Kind::kGradInput: return "cudnnConvolutionBackwardData";
    case Kind::kGradFilter: return "cudnnConvolutionBackwardFilter";
  }
  return "";
}
const char* call_of(const Pooling& pooling) {
  return pooling.gradient ? "cudnnPoolingBackward" : "cudnnPoolingForward";
}

const char* call_of(const Attention&) { return "cudnnBackendExecute"; }

void check(cudnnStatus_t status, const auto& of, const Where& where) {
  if (status != CUDNN_STATUS_SUCCESS) fail(status, call_of(of), where.str());
}

std::int64_t elements(const std::array<int, 4>& shape) {
  std::int64_t product = 1;
  for (const int size : shape) product *= size;
  return product;
}

}  // namespace

void Cudnn::get_ready(const Where& where) {
  if (handle_) return;
  CudnnHandle made = make_cudnn(where.str());
  if (stream_) BELFRY_GPU_CALL(cudnnSetStream(made.get(), stream_), where);
  handle_ = std::move(made);
}

std::vector<CudnnAlgorithm> Cudnn::ranked(const Convolution& convolution, const Where& where) {
  return algorithms(convolution, false, where);
}

std::vector<CudnnAlgorithm> Cudnn::measured(const Convolution& convolution, const Where& where) {
  return algorithms(convolution, true, where);
}

std::vector<CudnnAlgorithm> Cudnn::algorithms(const Convolution& convolution, bool measured,
                                              const Where& where) {
  get_ready(where);
  const ConvolutionDescriptors& d = described(convolution, where);
  const auto x = d.x.get(), y = d.y.get();
  const auto filter = d.filter.get();
  const auto windows = d.convolution.get();
  const auto handle = handle_.get();
  cudnnMathType_t math{};
  BELFRY_GPU_CALL(cudnnGetConvolutionMathType(windows, &math), where);
  const auto size = [&](auto algorithm, std::size_t* bytes) {
    return workspace(convolution, static_cast<int>(algorithm), bytes, where);
  };
  forget_details<cudnnStatus_t>();
  switch (convolution.kind) {
    case Kind::kForward:
      return usable<cudnnConvolutionFwdAlgoPerf_t>(
          math,
          [&](int most, int* count, auto* answers) {
            const auto list = measured ? cudnnFindConvolutionForwardAlgorithm
                                       : cudnnGetConvolutionForwardAlgorithm_v7;
            return list(handle, x, filter, windows, y, most, count, answers);
          },
          size, where);
    case Kind::kGradInput:
      return usable<cudnnConvolutionBwdDataAlgoPerf_t>(
          math,
          [&](int most, int* count, auto* answers) {
            const auto list = measured ? cudnnFindConvolutionBackwardDataAlgorithm
                                       : cudnnGetConvolutionBackwardDataAlgorithm_v7;
            return list(handle, filter, y, windows, x, most, count, answers);
          },
          size, where);
    case Kind::kGradFilter:
      return usable<cudnnConvolutionBwdFilterAlgoPerf_t>(
          math,
          [&](int most, int* count, auto* answers) {
            const auto list = measured ? cudnnFindConvolutionBackwardFilterAlgorithm
                                       : cudnnGetConvolutionBackwardFilterAlgorithm_v7;
            return list(handle, x, y, windows, filter, most, count, answers);
          },
          size, where);
  }
  return {};
}

cudnnStatus_t Cudnn::workspace(const Convolution& convolution, int number, std::size_t* bytes,
                               const Where& where) {
  const ConvolutionDescriptors& d = described(convolution, where);
  const auto handle = handle_.get();
  const auto x = d.x.get(), y = d.y.get();
  const auto filter = d.filter.get();
  const auto windows = d.convolution.get();
  switch (convolution.kind) {
    case Kind::kForward:
      return cudnnGetConvolutionForwardWorkspaceSize(
          handle, x, filter, windows, y, static_cast<cudnnConvolutionFwdAlgo_t>(number), bytes);
    case Kind::kGradInput:
      return cudnnGetConvolutionBackwardDataWorkspaceSize(
          handle, filter, y, windows, x, static_cast<cudnnConvolutionBwdDataAlgo_t>(number), bytes);
    case Kind::kGradFilter:
      return cudnnGetConvolutionBackwardFilterWorkspaceSize(
          handle, x, y, windows, filter, static_cast<cudnnConvolutionBwdFilterAlgo_t>(number),
          bytes);
  }
  return CUDNN_STATUS_BAD_PARAM;
}

const ConvolutionDescriptors& Cudnn::described(const Convolution& convolution, const Where& where) {
  auto found = convolutions_.find(convolution);
  if (found == convolutions_.end())
    found = convolutions_.emplace(convolution, describe(convolution, where)).first;
  return found->second;
}

cudnnStatus_t Cudnn::enqueue(const ConvolutionCall& call, const Where& where) {
  get_ready(where);
  const ConvolutionDescriptors& d = described(call.convolution, where);
  const Factors factors(call.convolution.dtype);
  const void *one = factors.one(), *zero = factors.zero();
  const auto handle = handle_.get();
  const auto x = d.x.get(), y = d.y.get();
  const auto filter = d.filter.get();
  const auto windows = d.convolution.get();
  const int number = call.algorithm.number;
  const auto bytes = static_cast<std::size_t>(call.algorithm.workspace_bytes);
  forget_details<cudnnStatus_t>();
  switch (call.convolution.kind) {
    case Kind::kForward:
      return cudnnConvolutionForward(handle, one, x, call.first, filter, call.second, windows,
                                     static_cast<cudnnConvolutionFwdAlgo_t>(number), call.workspace,
                                     bytes, zero, y, call.out);
    case Kind::kGradInput:
      return cudnnConvolutionBackwardData(handle, one, filter, call.second, y, call.first, windows,
                                          static_cast<cudnnConvolutionBwdDataAlgo_t>(number),
                                          call.workspace, bytes, zero, x, call.out);
    case Kind::kGradFilter:
      return cudnnConvolutionBackwardFilter(handle, one, x, call.first, y, call.second, windows,
                                            static_cast<cudnnConvolutionBwdFilterAlgo_t>(number),
                                            call.workspace, bytes, zero, filter, call.out);
  }
  return CUDNN_STATUS_BAD_PARAM;
}

void Cudnn::convolve(const ConvolutionCall& call, const Where& where) {
  check(enqueue(call, where), call.convolution, where);
}

bool Cudnn::convolves(const Convolution& convolution, const CudnnAlgorithm& algorithm,
                      const Where& where) {
  Convolution one = convolution;
  one.x[0] = one.y[0] = 1;
  get_ready(where);
  std::size_t bytes = 0;
  if (workspace(one, algorithm.number, &bytes, where) != CUDNN_STATUS_SUCCESS) return false;
  CudnnAlgorithm on_one = algorithm;
  on_one.workspace_bytes = static_cast<std::int64_t>(bytes);
  const auto memory = [&](std::int64_t size) {
    DeviceMemory found = allocate(static_cast<std::size_t>(size), where.str());
    require<OutOfMemory>(bool(found), "no memory for an image of ", convolution, " ", where);
    return found;
  };
  const auto tensor = [&](const std::array<int, 4>& shape) {
    return memory(elements(shape) * static_cast<std::int64_t>(size_of(convolution.dtype)));
  };
  const DeviceMemory x = tensor(one.x), filter = tensor(one.filter), y = tensor(one.y);
  const DeviceMemory scratch = memory(std::max<std::int64_t>(on_one.workspace_bytes, 1));
  const bool gives_x = convolution.kind == Kind::kGradInput;
  const bool forward = convolution.kind == Kind::kForward;
  const cudnnStatus_t status = enqueue({.convolution = one,
                                        .algorithm = on_one,
                                        .first = gives_x ? y.get() : x.get(),
                                        .second = forward || gives_x ? filter.get() : y.get(),
                                        .out = forward   ? y.get()
                                               : gives_x ? x.get()
                                                         : filter.get(),
                                        .workspace = static_cast<std::byte*>(scratch.get())},
                                       where);
  if (refused(status)) return false;
  check(status, convolution, where);
  BELFRY_GPU_CALL(cudaDeviceSynchronize(), "after ", convolution, " ", where);
  return true;
}

cudnnStatus_t Cudnn::enqueue(const PoolingCall& call, const Where& where) {
  get_ready(where);
  auto found = poolings_.find(call.pooling);
  if (found == poolings_.end())
    found = poolings_.emplace(call.pooling, describe(call.pooling, where)).first;
  const PoolingDescriptors& d = found->second;
  const Factors factors(call.pooling.dtype);
  const void *one = factors.one(), *zero = factors.zero();
  const auto handle = handle_.get();
  const auto windows = d.pooling.get();
  forget_details<cudnnStatus_t>();
  const auto x = d.x.get(), y = d.y.get();
  if (!call.pooling.gradient)
    return cudnnPoolingForward(handle, windows, one, x, call.in, zero, y, call.out);
  // The gradient of a mean does not depend on x and y, but they are not optional.
  return cudnnPoolingBackward(handle, windows, one, y, call.in, y, call.in, x, call.out, zero, x,
                              call.out);
}

bool Cudnn::pools(const Pooling& pooling, const Where& where) {
  if (!describable(pooling, where)) return false;
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

cudnnStatus_t Cudnn::enqueue(const AttentionCall& call, const Where& where) {
  get_ready(where);
  const std::pair key(call.attention, call.algorithm.number);
  auto found = attentions_.find(key);
  if (found == attentions_.end())
    found = attentions_.emplace(key, CudnnAttention(key.first, key.second, where)).first;
  return found->second.run(handle_.get(), call, where);
}

void Cudnn::attend(const AttentionCall& call, const Where& where) {
  check(enqueue(call, where), call.attention, where);
}

bool Cudnn::attends(const AttentionCall& call, const Where& where) {
  const cudnnStatus_t status = enqueue(call, where);
  if (refused(status)) return false;
  check(status, call.attention, where);
  return true;
}

std::vector<CudnnAlgorithm> Cudnn::ranked(const Recurrence& recurrence, const Where& where) {
  get_ready(where);
  return CudnnRecurrence::algorithms(recurrence, handle_.get(), where);
}

const CudnnRecurrence& Cudnn::described(const Recurrence& recurrence, int number,
                                        const Where& where) {
  get_ready(where);
  const std::pair key(recurrence, number);
  auto found = recurrences_.find(key);
  if (found == recurrences_.end())
    found = recurrences_.emplace(key, CudnnRecurrence(recurrence, number, where)).first;
  return found->second;
}

void Cudnn::recur(const RecurrenceCall& call, const Where& where) {
  described(call.recurrence, call.algorithm.number, where).run(handle_.get(), call, where);
}

void Cudnn::recur_back(const RecurrenceGradCall& call, const Where& where) {
  described(call.recurrence, call.algorithm.number, where).run_back(handle_.get(), call, where);
}

}  // namespace belfry::cuda
