#include "belfry/framework/cuda/runtime/cudnn_attention.h"

#include <limits>

#include "belfry/framework/base/require.h"

namespace belfry::cuda {
namespace {

using Tensor = CudnnGraph::Tensor;
using Layout = CudnnGraph::Layout;

// NVIDIA's cudnn-frontend refuses 9.10.0 and 9.10.1. Before 9.16 it adds operations to gradients of
// times that are not a multiple of 128.
constexpr std::size_t kOldestCudnn = 91002, kOldestOfAllTimes = 91600;
constexpr std::int64_t kOldTimes = 128;

// A run gets the addresses of these.
enum Id : std::int64_t {
  kIn = 1,    // and after it: AttentionCall::in
  kOut = 11,  // AttentionCall::out
  kScale = 21,
  kUnseen,  // the score of keys after a query
  kOne,
  kRowSums = 31,  // of dy * y; in the workspace
  kDqSums,        // in the workspace, where sums for dq are added up as they arrive
};

constexpr float kUnseenScore = -std::numeric_limits<float>::infinity(), kUnit = 1;

std::int64_t whole_blocks(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }
std::int64_t row_sum_bytes(const Attention& of) {
  return of.gradient ? whole_blocks(of.batch * of.heads * of.time * 4) : 0;
}
std::int64_t dq_sum_bytes(const Attention& of) {
  return of.gradient ? whole_blocks(of.batch * of.heads * of.time * of.head_dim * 4) : 0;
}

// Makes the graph of a forward pass or of a gradient. Axes are batch, head, time, and column or the
// other time.
class AttentionGraph {
 public:
  AttentionGraph(const Attention& of, const Where& where)
      : of_(of),
        type_(of.dtype == DType::kF16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16),
        graph_(where) {
    const std::int64_t b = of.batch, h = of.heads, t = of.time, d = of.head_dim;
    heads_ = {{b, h, t, d}, {t * h * d, d, h * d, 1}};
    const std::int64_t step = (of.joined ? 3 : 1) * h * d;
    parts_ = {{b, h, t, d}, {t * step, d, step, 1}};
    turned_heads_ = {{b, h, d, t}, {t * step, d, 1, step}};
    apart_ = {{b, h, t, d}, {h * t * d, t * d, d, 1}};
    pairs_ = {{b, h, t, t}, {h * t * t, t * t, t, 1}};
    turned_pairs_ = {{b, h, t, t}, {h * t * t, t * t, 1, t}};
    rows_ = {{b, h, t, 1}, {h * t, t, 1, 1}};
    scale_ = graph_.number(kScale);
    unseen_ = graph_.number(kUnseen);
    if (of.gradient)
      make_gradient();
    else
      make_forward();
    made_ = graph_.finish();
  }

  cudnnBackendDescriptor_t get() const { return made_; }

 private:
  Tensor in(std::int64_t i, const Layout& layout) { return graph_.memory(kIn + i, type_, layout); }
  Tensor out(std::int64_t i, const Layout& layout) {
    return graph_.memory(kOut + i, type_, layout);
  }

  Tensor apply(cudnnPointwiseMode_t mode, const Layout& layout, Tensor x, Tensor b = nullptr) {
    const Tensor y = graph_.between(CUDNN_DATA_FLOAT, layout);
    graph_.pointwise({.mode = mode, .x = x, .b = b}, y);
    return y;
  }
  Tensor reduced(cudnnReduceTensorOp_t how, Tensor x) {
    const Tensor y = graph_.between(CUDNN_DATA_FLOAT, rows_);
    graph_.reduce(how, x, y);
    return y;
  }
  Tensor product(Tensor a, Tensor b) {
    const Tensor scores = graph_.between(CUDNN_DATA_FLOAT, pairs_);
    graph_.multiply(a, b, scores);
    return scores;
  }
  Tensor turned(Tensor x, cudnnDataType_t type, const Layout& layout) {
    const Tensor y = graph_.between(type, layout);
    graph_.reshape(x, y);
    return y;
  }
  // Keeps the scores of keys up to each query, and masks the others.
  Tensor masked(Tensor scores) {
    const auto time = [&](std::int64_t axis) {
      const Tensor t = graph_.between(CUDNN_DATA_INT32, pairs_);
      graph_.pointwise({.mode = CUDNN_POINTWISE_GEN_INDEX, .x = scores, .axis = axis}, t);
      return t;
    };
    const Tensor queries = time(2), keys = time(3);
    const Tensor seen = graph_.between(CUDNN_DATA_BOOLEAN, pairs_);
    graph_.pointwise(
        {.mode = CUDNN_POINTWISE_CMP_GE, .x = queries, .b = keys, .computed = CUDNN_DATA_BOOLEAN},
        seen);
    const Tensor y = graph_.between(CUDNN_DATA_FLOAT, pairs_);
    graph_.pointwise(
        {.mode = CUDNN_POINTWISE_BINARY_SELECT, .x = scores, .b = unseen_, .mask = seen}, y);
    return y;
  }

  void make_forward() {
    const Tensor q = in(0, parts_), k = in(1, turned_heads_), v = in(2, parts_), y = out(0, heads_);
    const Tensor log_sums = graph_.memory(kOut + 1, CUDNN_DATA_FLOAT, rows_);
    const Tensor scores = masked(apply(CUDNN_POINTWISE_MUL, pairs_, product(q, k), scale_));
    const Tensor largest = reduced(CUDNN_REDUCE_TENSOR_MAX, scores);
    const Tensor shifted = apply(CUDNN_POINTWISE_SUB, pairs_, scores, largest);
    const Tensor weights = apply(CUDNN_POINTWISE_EXP, pairs_, shifted);
    const Tensor sums = reduced(CUDNN_REDUCE_TENSOR_ADD, weights);
    graph_.pointwise(
        {.mode = CUDNN_POINTWISE_ADD, .x = largest, .b = apply(CUDNN_POINTWISE_LOG, rows_, sums)},
        log_sums);
    const Tensor shares = graph_.between(type_, pairs_);
    graph_.pointwise({.mode = CUDNN_POINTWISE_DIV, .x = weights, .b = sums}, shares);
    graph_.multiply(shares, v, y);
  }

  void make_gradient() {
    const Tensor dy = in(0, heads_), q = in(1, parts_), k = in(2, turned_heads_),
                 v = in(3, turned_heads_), y = in(4, heads_);
    const Tensor log_sums = graph_.memory(kIn + 5, CUDNN_DATA_FLOAT, rows_);
    const Tensor dq = out(0, parts_), dk = out(1, parts_), dv = out(2, parts_);
    // A multiplication by one: without it cuDNN takes three times the workspace.
    const Tensor row_sums = graph_.memory(kRowSums, CUDNN_DATA_FLOAT, rows_);
    graph_.pointwise(
        {.mode = CUDNN_POINTWISE_MUL,
         .x = reduced(CUDNN_REDUCE_TENSOR_ADD, apply(CUDNN_POINTWISE_MUL, heads_, dy, y)),
         .b = graph_.number(kOne)},
        row_sums);

    const Tensor scores = apply(CUDNN_POINTWISE_MUL, pairs_, product(q, k), scale_);
    const Tensor shares = apply(CUDNN_POINTWISE_EXP, pairs_,
                                masked(apply(CUDNN_POINTWISE_SUB, pairs_, scores, log_sums)));
    graph_.multiply(turned(shares, type_, turned_pairs_), dy, dv);

    const Tensor share_grads = apply(CUDNN_POINTWISE_SUB, pairs_, product(dy, v), row_sums);
    const Tensor score_grads =
        apply(CUDNN_POINTWISE_MUL, pairs_, apply(CUDNN_POINTWISE_MUL, pairs_, share_grads, shares),
              scale_);
    graph_.multiply(turned(score_grads, type_, turned_pairs_), q, dk);

    const Tensor dq_sums = graph_.memory(kDqSums, CUDNN_DATA_FLOAT, apart_);
    graph_.multiply(score_grads, turned(k, type_, parts_), dq_sums);
    graph_.pointwise({.mode = CUDNN_POINTWISE_IDENTITY, .x = dq_sums}, dq);
  }

  const Attention& of_;
  cudnnDataType_t type_;
  CudnnGraph graph_;
  // heads_: of y and dy; parts_: of q, v, dq, dk and dv; turned_heads_: of k, and of v for dy.
  Layout heads_, parts_, turned_heads_, apart_, pairs_, turned_pairs_, rows_;
  Tensor scale_ = nullptr, unseen_ = nullptr;
  cudnnBackendDescriptor_t made_ = nullptr;
};

// cuDNN gets no tensors of 2^31 elements or more, because its kernels also count in int. It gets no
// attention over one time, because it refuses some gradients of it.
bool is_taken(const Attention& attention) {
  const double elements = static_cast<double>(attention.batch) *
                          static_cast<double>(attention.time) *
                          static_cast<double>(attention.heads) *
                          static_cast<double>(attention.head_dim) * (attention.joined ? 3 : 1);
  const std::size_t oldest =
      attention.gradient && attention.time % kOldTimes != 0 ? kOldestOfAllTimes : kOldestCudnn;
  return cudnnGetVersion() >= oldest && attention.time > 1 &&
         elements <= std::numeric_limits<int>::max();
}

BackendDescriptor chosen(std::vector<BackendDescriptor> configurations, int number,
                         const Attention& attention, const Where& where) {
  const auto place = static_cast<std::size_t>(number);
  require<DeviceError>(place < configurations.size(), "cuDNN has no algorithm ", number, " of ",
                       attention, " ", where);
  return std::move(configurations[place]);
}

}  // namespace

// The graph is not needed once the plan exists.
CudnnAttention::CudnnAttention(const Attention& attention, int number, const Where& where)
    : plan_(chosen(configurations(AttentionGraph(attention, where).get(), nullptr, where), number,
                   attention, where),
            nullptr, where) {}

cudnnStatus_t CudnnAttention::run(cudnnHandle_t handle, const AttentionCall& call,
                                  const Where& where) const {
  std::vector<std::int64_t> ids;
  std::vector<void*> addresses;
  const auto tell = [&](std::int64_t id, const void* address) {
    if (!address) return;
    ids.push_back(id);
    addresses.push_back(const_cast<void*>(address));  // it is the graph that says what is written
  };
  for (std::size_t i = 0; i < call.in.size(); ++i)
    tell(kIn + static_cast<std::int64_t>(i), call.in[i]);
  for (std::size_t i = 0; i < call.out.size(); ++i)
    tell(kOut + static_cast<std::int64_t>(i), call.out[i]);
  tell(kScale, &call.attention.scale);
  tell(kUnseen, &kUnseenScore);
  if (call.attention.gradient) {
    std::byte* const behind = call.workspace + whole_blocks(plan_.workspace_bytes());
    tell(kOne, &kUnit);
    tell(kRowSums, behind);
    tell(kDqSums, behind + row_sum_bytes(call.attention));
  }
  return plan_.run(handle, ids, addresses, call.workspace, where);
}

std::vector<CudnnAlgorithm> CudnnAttention::algorithms(const Attention& attention,
                                                       const Where& where,
                                                       cudnnBackendDescriptor_t device) {
  std::vector<CudnnAlgorithm> all;
  if (!is_taken(attention)) return all;
  try {
    const AttentionGraph graph(attention, where);
    int number = 0;
    for (const BackendDescriptor& one : configurations(graph.get(), device, where)) {
      try {
        const CudnnPlan plan(one, device, where);
        all.push_back({.number = number,
                       .workspace_bytes = whole_blocks(plan.workspace_bytes()) +
                                          row_sum_bytes(attention) + dq_sum_bytes(attention)});
      } catch (const DeviceError&) {  // another may work
      }
      ++number;
    }
  } catch (const DeviceError&) {  // cuDNN may say so that it has none
  }
  return all;
}

}  // namespace belfry::cuda
