#include "belfry/framework/kernels/math.h"
#include "belfry/ops/attention/attention_blocks_impl.h"
#include "belfry/ops/attention/attention_impl.h"

namespace belfry::kernels {
namespace {

template <class T>
struct AttentionGradScratch {
  AttentionGradScratch(const HeadBlocks<T>& head, std::byte* workspace) {
    Carver<T> carver(workspace);
    for (T** blocks : {&q, &dy, &dq}) *blocks = carver.take(head.all());
    for (T** numbers : {&log_sums, &products}) *numbers = carver.take(head.count * kAttentionBlock);
    for (T** block : {&k, &keys, &values, &dk, &dv}) *block = carver.take(head.block());
    for (T** square : {&weights, &grads}) *square = carver.take(kAttentionBlock * kAttentionBlock);
    bytes = carver.bytes();
  }

  T *q, *dy, *dq;          // all blocks; q is scaled
  T *log_sums, *products;  // of each query; products: of y and dy
  T *k, *keys, *values;    // one block; `keys` and `values` are transposed
  T *dk, *dv;              // the block's gradients
  T *weights, *grads;      // of each query and key; grads: of the scores
  std::int64_t bytes;
};

template <class T>
BELFRY_KERNEL void dot_rows(const T* a, const T* b, std::int64_t rows, std::int64_t columns,
                            T* products) {
  constexpr std::int64_t kLanes = BlockLanes<T>::kCount;
  for (std::int64_t r = 0; r < rows; ++r) {
    T lanes[kLanes] = {};
    for (std::int64_t c = r * columns; c < (r + 1) * columns; c += kLanes)
      for (std::int64_t x = 0; x < kLanes; ++x) lanes[x] += a[c + x] * b[c + x];
    for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
      for (std::int64_t x = 0; x < half; ++x) lanes[x] += lanes[x + half];
    products[r] = lanes[0];
  }
}

// Turns scores and gradients of weights into weights and gradients of scores.
template <class T>
BELFRY_KERNEL void weigh_grads(const T* log_sums, const T* products, std::int64_t rows, T* scores,
                               T* grads) {
  for (std::int64_t r = 0; r < rows; ++r) {
    T *const p = scores + r * kAttentionBlock, *const d = grads + r * kAttentionBlock;
    BELFRY_INDEPENDENT
    for (std::int64_t k = 0; k < kAttentionBlock; ++k) {
      const T weight = math::exp(p[k] - log_sums[r]);
      d[k] = weight * (d[k] - products[r]);
      p[k] = weight;
    }
  }
}

template <class T>
void load_queries(const HeadBlocks<T>& head, const StoredElements<T>& stored,
                  const AttentionGradTensors& tensors, std::int64_t at, const T* log_sums,
                  const AttentionGradScratch<T>& scratch) {
  std::memset(scratch.dq, 0, static_cast<std::size_t>(head.all()) * sizeof(T));
  for (std::int64_t i = 0; i < head.count; ++i) {
    T *const q = scratch.q + i * head.block(), *const dy = scratch.dy + i * head.block();
    load_block(head, stored, tensors.q, at, i, q);
    scale_block(head, static_cast<T>(head.shape.scale), q);
    load_block(head, stored, tensors.dy, at, i, dy);
    load_block(head, stored, tensors.y, at, i, scratch.k);
    dot_rows(scratch.k, dy, kAttentionBlock, head.columns, scratch.products + i * kAttentionBlock);
  }
  const std::int64_t padded = head.count * kAttentionBlock;
  for (std::int64_t t = 0; t < padded; ++t)
    scratch.log_sums[t] = t < head.shape.time ? log_sums[t] : T(0);
}

template <class T>
void load_keys(const HeadBlocks<T>& head, const StoredElements<T>& stored,
               const AttentionGradTensors& tensors, std::int64_t at, std::int64_t j,
               const AttentionGradScratch<T>& scratch) {
  load_block(head, stored, tensors.v, at, j, scratch.k);
  transpose_block(head, scratch.k, scratch.values);
  load_block(head, stored, tensors.k, at, j, scratch.k);
  transpose_block(head, scratch.k, scratch.keys);
  for (T* sum : {scratch.dk, scratch.dv})
    std::memset(sum, 0, static_cast<std::size_t>(head.block()) * sizeof(T));
}

// Adds to the gradients what the queries of block i contribute with the keys in scratch.
template <class T>
void add_gradients(const HeadBlocks<T>& head, const AttentionGradScratch<T>& scratch,
                   std::int64_t i, bool diagonal) {
  const std::int64_t rows = head.rows(i), padded = (rows + 3) / 4 * 4;
  const T *const q = scratch.q + i * head.block(), *const dy = scratch.dy + i * head.block();
  multiply_transposed(head, q, scratch.keys, rows, diagonal, scratch.weights);
  multiply_transposed(head, dy, scratch.values, rows, diagonal, scratch.grads);
  weigh_grads(scratch.log_sums + i * kAttentionBlock, scratch.products + i * kAttentionBlock,
              padded, scratch.weights, scratch.grads);
  add_over_queries(head, scratch.weights, dy, rows, diagonal, scratch.dv);
  add_over_queries(head, scratch.grads, q, rows, diagonal, scratch.dk);
  add_over_keys(head, scratch.grads, scratch.k, rows, diagonal, scratch.dq + i * head.block());
}

}  // namespace

template <class T>
std::int64_t attention_grad_workspace(const AttentionShape& shape) {
  return AttentionGradScratch<T>(HeadBlocks<T>(shape), nullptr).bytes;
}

template <class T>
void attention_head_grad(const AttentionShape& shape, const StoredElements<T>& stored,
                         const AttentionGradTensors& tensors, std::int64_t at, const T* log_sums,
                         std::byte* workspace) {
  const HeadBlocks<T> head(shape);
  const AttentionGradScratch<T> scratch(head, workspace);
  load_queries(head, stored, tensors, at, log_sums, scratch);
  for (std::int64_t j = 0; j < head.count; ++j) {
    load_keys(head, stored, tensors, at, j, scratch);
    for (std::int64_t i = j; i < head.count; ++i) add_gradients(head, scratch, i, i == j);
    store_block(head, stored, scratch.dk, j, tensors.dk, at);
    store_block(head, stored, scratch.dv, j, tensors.dv, at);
  }
  for (std::int64_t i = 0; i < head.count; ++i) {
    scale_block(head, static_cast<T>(shape.scale), scratch.dq + i * head.block());
    store_block(head, stored, scratch.dq + i * head.block(), i, tensors.dq, at);
  }
}

template std::int64_t attention_grad_workspace<float>(const AttentionShape&);
template std::int64_t attention_grad_workspace<double>(const AttentionShape&);
template void attention_head_grad(const AttentionShape&, const StoredElements<float>&,
                                  const AttentionGradTensors&, std::int64_t, const float*,
                                  std::byte*);
template void attention_head_grad(const AttentionShape&, const StoredElements<double>&,
                                  const AttentionGradTensors&, std::int64_t, const double*,
                                  std::byte*);

}  // namespace belfry::kernels
