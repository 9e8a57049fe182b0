// The functions of cuDNN for recurrent networks that need a GPU. Descriptors are cuDNN's own.
#include <vector>

#include <cudnn.h>

#include "belfry/tests/recorder/library_calls.h"
#include "belfry/tests/recorder/library_handles.h"

using namespace belfry::recorder;
using belfry::cat;

namespace {

constexpr std::size_t kNetworkWorkspace = 2048;

// What descriptors say.
struct Network {
  cudnnRNNAlgo_t algorithm{};
  cudnnRNNMode_t cell{};
  cudnnRNNBiasMode_t biases{};
  cudnnDirectionMode_t directions{};
  cudnnRNNInputMode_t input{};
  cudnnDataType_t type{}, computed{};
  cudnnMathType_t math{};
  int features = 0, hidden = 0, projected = 0, layers = 0;

  explicit Network(cudnnRNNDescriptor_t rnn) {
    cudnnDropoutDescriptor_t dropout{};
    unsigned flags = 0;
    real<decltype(cudnnGetRNNDescriptor_v8)>("cudnnGetRNNDescriptor_v8")(
        rnn, &algorithm, &cell, &biases, &directions, &input, &type, &computed, &math, &features,
        &hidden, &projected, &layers, &dropout, &flags);
  }
  std::size_t element() const { return type == CUDNN_DATA_DOUBLE ? 8 : 4; }
  std::size_t gates() const { return cell == CUDNN_LSTM ? 4 : 3; }
  std::size_t weights() const {
    const auto n = static_cast<std::size_t>(hidden), k = static_cast<std::size_t>(features);
    return gates() * n * (k + n + 2) * element();
  }
  std::string text() const {
    return cat(cell == CUDNN_LSTM ? "lstm, " : "gru, ", math == CUDNN_FMA_MATH ? kExact : kTf32,
               ", algorithm ", static_cast<int>(algorithm));
  }
};

struct SequenceData {
  int time = 0, batch = 0, size = 0;

  explicit SequenceData(cudnnRNNDataDescriptor_t data) {
    cudnnDataType_t type{};
    cudnnRNNDataLayout_t layout{};
    real<decltype(cudnnGetRNNDataDescriptor)>("cudnnGetRNNDataDescriptor")(
        data, &type, &layout, &time, &batch, &size, 0, nullptr, nullptr);
  }
  std::size_t vectors() const {
    return static_cast<std::size_t>(time) * static_cast<std::size_t>(batch);
  }
  std::size_t elements() const { return vectors() * static_cast<std::size_t>(size); }
};

// cuDNN 9.19 saves as much.
std::size_t saved_bytes(const Network& net, const SequenceData& data) {
  const std::size_t vectors = net.cell == CUDNN_LSTM ? 5 : 6;
  return vectors * data.vectors() * static_cast<std::size_t>(net.hidden) * net.element() + 256;
}

// What all calls are given.
struct Spaces {
  std::size_t weight_bytes;
  const void* weights;
  std::size_t workspace_bytes;
  void* workspace;
  std::size_t saved_bytes;
  void* saved;
};

// Refuses memory of other sizes than the descriptors need. `tensors` are added to the spaces.
cudnnStatus_t enqueue_network(Handle& by, const char* function, const Network& net,
                              const SequenceData& x, const Spaces& s, const std::int32_t* lengths,
                              std::vector<Given> tensors) {
  if (s.weight_bytes != net.weights() || s.workspace_bytes < kNetworkWorkspace ||
      s.saved_bytes < saved_bytes(net, x))
    return CUDNN_STATUS_BAD_PARAM;
  tensors.insert(tensors.end(), {{lengths, static_cast<std::size_t>(x.batch) * 4},
                                 {s.weights, s.weight_bytes, 256},
                                 {s.workspace, s.workspace_bytes, 256},
                                 {s.saved, s.saved_bytes}});
  return enqueue(by.stream, function, net.text(), tensors) ? CUDNN_STATUS_SUCCESS
                                                           : CUDNN_STATUS_MAPPING_ERROR;
}

// A state; none for c of a GRU, which must be null.
std::vector<Given> states(const char* function, const Network& net, const SequenceData& x,
                          std::initializer_list<const void*> h,
                          std::initializer_list<const void*> c) {
  const std::size_t bytes =
      static_cast<std::size_t>(x.batch) * static_cast<std::size_t>(net.hidden) * net.element();
  std::vector<Given> all;
  for (const void* state : h) all.push_back({state, bytes});
  for (const void* state : c) {
    if (net.cell == CUDNN_LSTM)
      all.push_back({state, bytes});
    else if (state)
      recorder().violate(cat(function, " gives a GRU a state c"));
  }
  return all;
}

// cuDNN 9 reads no handle where it only counts, but it may look for one.
cudnnHandle_t no_gpu() {
  static std::vector<char> nothing(1 << 20);
  return reinterpret_cast<cudnnHandle_t>(nothing.data());
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        std::size_t* workspace, std::size_t* saved) {
  constexpr const char* kName = "cudnnGetRNNTempSpaceSizes";
  return recorder().call<cudnnStatus_t>(kName, kInSteps | kInCaptures, [&] {
    handle_of(handle, kName);
    const Network net(rnn);
    if (net.algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H) return CUDNN_STATUS_NOT_SUPPORTED;
    *workspace = kNetworkWorkspace;
    *saved = mode == CUDNN_FWD_MODE_TRAINING ? saved_bytes(net, SequenceData(x)) : 0;
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                         std::size_t* bytes) {
  constexpr const char* kName = "cudnnGetRNNWeightSpaceSize";
  return recorder().call<cudnnStatus_t>(kName, kInSteps | kInCaptures, [&] {
    handle_of(handle, kName);
    return real<decltype(cudnnGetRNNWeightSpaceSize)>(kName)(no_gpu(), rnn, bytes);
  });
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                      std::int32_t layer, std::size_t bytes, const void* space,
                                      std::int32_t number, cudnnTensorDescriptor_t matrix,
                                      void** at_matrix, cudnnTensorDescriptor_t bias,
                                      void** at_bias) {
  constexpr const char* kName = "cudnnGetRNNWeightParams";
  return recorder().call<cudnnStatus_t>(kName, kInSteps | kInCaptures, [&] {
    handle_of(handle, kName);
    return real<decltype(cudnnGetRNNWeightParams)>(kName)(no_gpu(), rnn, layer, bytes, space,
                                                          number, matrix, at_matrix, bias, at_bias);
  });
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t,
                              const std::int32_t lengths[], cudnnRNNDataDescriptor_t of_x,
                              const void* x, cudnnRNNDataDescriptor_t of_y, void* y,
                              cudnnTensorDescriptor_t, const void* h, void* last_h,
                              cudnnTensorDescriptor_t, const void* c, void* last_c,
                              std::size_t weight_bytes, const void* weights,
                              std::size_t workspace_bytes, void* workspace, std::size_t saved_bytes,
                              void* saved) {
  constexpr const char* kName = "cudnnRNNForward";
  return recorder().call<cudnnStatus_t>(kName, kNowhere, [&] {
    const Network net(rnn);
    const SequenceData xs(of_x), ys(of_y);
    std::vector<Given> given = states(kName, net, xs, {h, last_h}, {c, last_c});
    given.insert(given.end(),
                 {{x, xs.elements() * net.element()}, {y, ys.elements() * net.element()}});
    return enqueue_network(handle_of(handle, kName), kName, net, xs,
                           {weight_bytes, weights, workspace_bytes, workspace, saved_bytes, saved},
                           lengths, std::move(given));
  });
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                      const std::int32_t lengths[], cudnnRNNDataDescriptor_t of_y,
                                      const void* y, const void* dy, cudnnRNNDataDescriptor_t of_x,
                                      void* dx, cudnnTensorDescriptor_t, const void* h,
                                      const void* dlast_h, void* dh, cudnnTensorDescriptor_t,
                                      const void* c, const void* dlast_c, void* dc,
                                      std::size_t weight_bytes, const void* weights,
                                      std::size_t workspace_bytes, void* workspace,
                                      std::size_t saved_bytes, void* saved) {
  constexpr const char* kName = "cudnnRNNBackwardData_v8";
  return recorder().call<cudnnStatus_t>(kName, kNowhere, [&] {
    Handle& by = handle_of(handle, kName);
    by.saved = saved;
    const Network net(rnn);
    const SequenceData xs(of_x), ys(of_y);
    std::vector<Given> given = states(kName, net, xs, {h, dlast_h, dh}, {c, dlast_c, dc});
    const std::size_t of_vectors = ys.elements() * net.element();
    given.insert(given.end(),
                 {{y, of_vectors}, {dy, of_vectors}, {dx, xs.elements() * net.element()}});
    return enqueue_network(by, kName, net, xs,
                           {weight_bytes, weights, workspace_bytes, workspace, saved_bytes, saved},
                           lengths, std::move(given));
  });
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                         cudnnWgradMode_t mode, const std::int32_t lengths[],
                                         cudnnRNNDataDescriptor_t of_x, const void* x,
                                         cudnnTensorDescriptor_t, const void* h,
                                         cudnnRNNDataDescriptor_t of_y, const void* y,
                                         std::size_t weight_bytes, void* dweights,
                                         std::size_t workspace_bytes, void* workspace,
                                         std::size_t saved_bytes, void* saved) {
  constexpr const char* kName = "cudnnRNNBackwardWeights_v8";
  return recorder().call<cudnnStatus_t>(kName, kNowhere, [&] {
    Handle& by = handle_of(handle, kName);
    if (std::exchange(by.saved, nullptr) != saved)
      recorder().violate(cat(kName, " does not follow cudnnRNNBackwardData_v8"));
    if (mode != CUDNN_WGRAD_MODE_ADD) return CUDNN_STATUS_NOT_SUPPORTED;
    const Network net(rnn);
    const SequenceData xs(of_x), ys(of_y);
    std::vector<Given> given = states(kName, net, xs, {h}, {});
    given.insert(given.end(),
                 {{x, xs.elements() * net.element()}, {y, ys.elements() * net.element()}});
    return enqueue_network(by, kName, net, xs,
                           {weight_bytes, dweights, workspace_bytes, workspace, saved_bytes, saved},
                           lengths, std::move(given));
  });
}

}  // extern "C"
