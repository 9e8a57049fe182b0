#include "belfry/framework/cuda/runtime/cudnn_recurrence.h"

#include <array>
#include <span>

namespace belfry::cuda {
namespace {

// Those that need no kernels compiled for them beforehand.
constexpr std::array kAlgorithms{CUDNN_RNN_ALGO_STANDARD, CUDNN_RNN_ALGO_PERSIST_STATIC,
                                 CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H};

cudnnDataType_t data_type(const Recurrence& of) {
  return of.dtype == DType::kF64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}
// cuDNN's default permits tf32.
cudnnMathType_t math_type(const Recurrence& of) {
  return of.compute == Compute::kTf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

RnnDescriptor describe_network(const Recurrence& of, int number, const Where& where) {
  cudnnRNNDescriptor_t handle = nullptr;
  BELFRY_GPU_CALL(cudnnCreateRNNDescriptor(&handle), where);
  RnnDescriptor rnn(handle);
  constexpr int kLayers = 1;
  BELFRY_GPU_CALL(
      cudnnSetRNNDescriptor_v8(handle, static_cast<cudnnRNNAlgo_t>(number),
                               of.has_c() ? CUDNN_LSTM : CUDNN_GRU, CUDNN_RNN_DOUBLE_BIAS,
                               CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, data_type(of),
                               data_type(of), math_type(of), of.features, of.hidden, of.hidden,
                               kLayers, nullptr, CUDNN_RNN_PADDED_IO_ENABLED),
      "algorithm ", number, " of ", of, " ", where);
  return rnn;
}

// Of x or y, whose vectors have `size` elements.
RnnDataDescriptor describe_sequences(const Recurrence& of, int size, const Where& where) {
  cudnnRNNDataDescriptor_t handle = nullptr;
  BELFRY_GPU_CALL(cudnnCreateRNNDataDescriptor(&handle), where);
  RnnDataDescriptor data(handle);
  const std::vector<int> lengths(static_cast<std::size_t>(of.batch), of.time);
  BELFRY_GPU_CALL(
      cudnnSetRNNDataDescriptor(handle, data_type(of), CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED,
                                of.time, of.batch, size, lengths.data(), nullptr),
      where);
  return data;
}

TensorDescriptor make_tensor(const Where& where) {
  cudnnTensorDescriptor_t handle = nullptr;
  BELFRY_GPU_CALL(cudnnCreateTensorDescriptor(&handle), where);
  return TensorDescriptor(handle);
}

// [layers, batch, hidden].
TensorDescriptor describe_state(const Recurrence& of, const Where& where) {
  TensorDescriptor state = make_tensor(where);
  const std::array sizes{1, of.batch, of.hidden}, steps{of.batch * of.hidden, of.hidden, 1};
  BELFRY_GPU_CALL(
      cudnnSetTensorNdDescriptor(state.get(), data_type(of), 3, sizes.data(), steps.data()), where);
  return state;
}

std::size_t weight_bytes(const Recurrence& of) {
  return static_cast<std::size_t>(of.weights()) * size_of(of.dtype);
}

}  // namespace

CudnnRecurrence::CudnnRecurrence(const Recurrence& recurrence, int number, const Where& where)
    : recurrence_(recurrence),
      rnn_(describe_network(recurrence, number, where)),
      x_(describe_sequences(recurrence, recurrence.features, where)),
      y_(describe_sequences(recurrence, recurrence.hidden, where)),
      state_(describe_state(recurrence, where)) {}

// cuDNN numbers the matrices of the gates of x, then those of h; each has a bias.
bool CudnnRecurrence::packs_like_us(cudnnHandle_t handle, const Where& where) const {
  const Recurrence& of = recurrence_;
  std::size_t bytes = 0;
  BELFRY_GPU_CALL(cudnnGetRNNWeightSpaceSize(handle, rnn_.get(), &bytes), where);
  if (bytes != weight_bytes(of)) return false;
  const TensorDescriptor matrix = make_tensor(where), bias = make_tensor(where);
  const auto gates = static_cast<int>(of.columns() / of.hidden);
  auto* const start = reinterpret_cast<std::byte*>(256);  // cuDNN only adds to the address
  const auto element = [&](std::int64_t i) {
    return start + i * static_cast<std::int64_t>(size_of(of.dtype));
  };
  for (int number = 0; number < 2 * gates; ++number) {
    void *at_matrix = nullptr, *at_bias = nullptr;
    BELFRY_GPU_CALL(cudnnGetRNNWeightParams(handle, rnn_.get(), 0, bytes, start, number,
                                            matrix.get(), &at_matrix, bias.get(), &at_bias),
                    where);
    const bool of_x = number < gates;
    const std::int64_t row = std::int64_t{of_x ? number : number - gates} * of.hidden;
    const std::int64_t behind_x = of.columns() * of.features;
    const std::int64_t behind_h = behind_x + of.columns() * of.hidden;
    if (at_matrix != element(of_x ? row * of.features : behind_x + row * of.hidden) ||
        at_bias != element(behind_h + std::int64_t{number} * of.hidden))
      return false;
  }
  return true;
}

std::vector<CudnnAlgorithm> CudnnRecurrence::algorithms(const Recurrence& recurrence,
                                                        cudnnHandle_t handle, const Where& where) {
  std::vector<CudnnAlgorithm> all;
  for (const int number : kAlgorithms) {
    try {
      const CudnnRecurrence one(recurrence, number, where);
      std::size_t workspace = 0, saved = 0;
      BELFRY_GPU_CALL(cudnnGetRNNTempSpaceSizes(handle, one.rnn_.get(), CUDNN_FWD_MODE_TRAINING,
                                                one.x_.get(), &workspace, &saved),
                      where);
      if (saved <= static_cast<std::size_t>(recurrence.saved_bytes) &&
          one.packs_like_us(handle, where))
        all.push_back({.number = number, .workspace_bytes = static_cast<std::int64_t>(workspace)});
    } catch (const DeviceError&) {  // another may work
    }
  }
  return all;
}

void CudnnRecurrence::run(cudnnHandle_t handle, const RecurrenceCall& call,
                          const Where& where) const {
  const RecurrenceTensors& t = call.tensors;
  BELFRY_GPU_CALL(
      cudnnRNNForward(handle, rnn_.get(), CUDNN_FWD_MODE_TRAINING, t.lengths, x_.get(), t.x,
                      y_.get(), call.y, state_.get(), t.h, call.last_h, state_.get(), t.c,
                      call.last_c, weight_bytes(recurrence_), t.weights,
                      static_cast<std::size_t>(call.algorithm.workspace_bytes), call.workspace,
                      static_cast<std::size_t>(recurrence_.saved_bytes), t.saved),
      where);
}

void CudnnRecurrence::run_back(cudnnHandle_t handle, const RecurrenceGradCall& call,
                               const Where& where) const {
  const RecurrenceTensors& t = call.tensors;
  const auto workspace_bytes = static_cast<std::size_t>(call.algorithm.workspace_bytes);
  const auto saved_bytes = static_cast<std::size_t>(recurrence_.saved_bytes);
  BELFRY_GPU_CALL(
      cudnnRNNBackwardData_v8(handle, rnn_.get(), t.lengths, y_.get(), call.y, call.dy, x_.get(),
                              call.dx, state_.get(), t.h, call.dlast_h, call.dh, state_.get(), t.c,
                              call.dlast_c, call.dc, weight_bytes(recurrence_), t.weights,
                              workspace_bytes, call.workspace, saved_bytes, t.saved),
      where);
  // It reads what the call before has left in the workspace and in `saved`.
  BELFRY_GPU_CALL(cudnnRNNBackwardWeights_v8(handle, rnn_.get(), CUDNN_WGRAD_MODE_ADD, t.lengths,
                                             x_.get(), t.x, state_.get(), t.h, y_.get(), call.y,
                                             weight_bytes(recurrence_), call.dweights,
                                             workspace_bytes, call.workspace, saved_bytes, t.saved),
                  where);
}

}  // namespace belfry::cuda
