#include "belfry/framework/kernels/math.h"
#include "belfry/ops/attention/attention_blocks_impl.h"
#include "belfry/ops/attention/attention_impl.h"

namespace belfry::kernels {
namespace {

// Queries of all heads of a group are in memory at once, `all` blocks one head after another.
template <class T>
struct AttentionGradScratch {
  AttentionGradScratch(const AttentionShape& shape, std::byte* workspace) {
    const HeadBlocks<T> head = blocks_of_queries<T>(shape);
    const std::int64_t blocks = shape.group() * head.count;
    Carver<T> carver(workspace);
    for (T** all : {&q, &dy, &dq}) *all = carver.take(blocks * head.block());
    for (T** numbers : {&log_sums, &products}) *numbers = carver.take(blocks * kAttentionBlock);
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

// Loads the queries of a head to block `first` of scratch and those after it. Queries that see no
// key get a sum of infinity, so that their weights are zero.
template <class T>
void load_queries(const AttentionShape& shape, const StoredElements<T>& stored,
                  const AttentionGradTensors<T>& tensors, const HeadGroup& of, std::int64_t head,
                  std::int64_t first, const AttentionGradScratch<T>& scratch) {
  const HeadBlocks<T> blocks = blocks_of_queries<T>(shape), results = blocks_of_results<T>(shape);
  const std::int64_t at = blocks.offset(of.sample, head), at_y = results.offset(of.sample, head);
  const T* const log_sums = tensors.log_sums + (of.sample * shape.heads + head) * shape.queries;
  for (std::int64_t i = 0; i < blocks.count; ++i) {
    const std::int64_t to = (first + i) * blocks.block();
    T *const q = scratch.q + to, *const dy = scratch.dy + to;
    std::memset(scratch.dq + to, 0, static_cast<std::size_t>(blocks.block()) * sizeof(T));
    load_block(blocks, stored, tensors.q, at, i, q);
    scale_block(blocks, static_cast<T>(shape.scale), q);
    load_block(results, stored, tensors.dy, at_y, i, dy);
    load_block(results, stored, tensors.y, at_y, i, scratch.k);
    dot_rows(scratch.k, dy, kAttentionBlock, blocks.columns,
             scratch.products + (first + i) * kAttentionBlock);
  }
  T* const sums = scratch.log_sums + first * kAttentionBlock;
  for (std::int64_t t = 0; t < blocks.count * kAttentionBlock; ++t) {
    sums[t] = t < shape.queries ? log_sums[t] : T(0);
    if (shape.may_see_none && sums[t] == -math::Format<T>::kInfinity)
      sums[t] = math::Format<T>::kInfinity;
  }
}

template <class T>
void load_keys(const HeadBlocks<T>& head, const StoredElements<T>& stored,
               const AttentionGradTensors<T>& tensors, std::int64_t at, std::int64_t j,
               const AttentionGradScratch<T>& scratch) {
  load_block(head, stored, tensors.v, at, j, scratch.k);
  transpose_block(head, scratch.k, scratch.values);
  load_block(head, stored, tensors.k, at, j, scratch.k);
  transpose_block(head, scratch.k, scratch.keys);
  for (T* sum : {scratch.dk, scratch.dv})
    std::memset(sum, 0, static_cast<std::size_t>(head.block()) * sizeof(T));
}

// Adds gradients of scores of block i of queries and block j of keys to those of the mask.
template <class T>
void add_to_mask(const Hiding<T>& hide, std::int64_t i, std::int64_t j, std::int64_t rows,
                 const T* grads, T* d_mask) {
  for (std::int64_t r = 0; r < rows; ++r, grads += kAttentionBlock) {
    const std::int64_t query = i * kAttentionBlock + r;
    const auto [first, end] = hide.seen(query, j);
    T* const to = d_mask + hide.row(query) + j * kAttentionBlock;
    for (std::int64_t k = first; k < end; ++k) to[k] += grads[k];
  }
}

// Adds to the gradients what the queries of block i of a head contribute with the keys in scratch,
// block j. The head begins at block `first` of scratch.
template <class T>
void add_gradients(const Hiding<T>& hide, const HeadBlocks<T>& head,
                   const AttentionGradScratch<T>& scratch, std::int64_t first, std::int64_t i,
                   std::int64_t j, T* d_mask) {
  const std::int64_t rows = blocks_of_queries<T>(hide.shape).rows(i), padded = (rows + 3) / 4 * 4;
  const std::int64_t at = (first + i) * head.block(), sums = (first + i) * kAttentionBlock;
  const bool diagonal = hide.diagonal(i, j);
  const T *const q = scratch.q + at, *const dy = scratch.dy + at;
  multiply_transposed(head, q, scratch.keys, rows, diagonal, scratch.weights);
  multiply_transposed(head, dy, scratch.values, rows, diagonal, scratch.grads);
  hide(i, j, rows, scratch.weights);
  weigh_grads(scratch.log_sums + sums, scratch.products + sums, padded, scratch.weights,
              scratch.grads);
  if (d_mask) add_to_mask(hide, i, j, rows, scratch.grads, d_mask);
  add_over_queries(head, scratch.weights, dy, rows, diagonal, scratch.dv);
  add_over_queries(head, scratch.grads, q, rows, diagonal, scratch.dk);
  add_over_keys(head, scratch.grads, scratch.k, rows, diagonal, scratch.dq + at);
}

// Scales and stores dq of a head, from block `first` of scratch on.
template <class T>
void store_queries(const AttentionShape& shape, const StoredElements<T>& stored, std::int64_t first,
                   const AttentionGradScratch<T>& scratch, void* dq, std::int64_t at) {
  const HeadBlocks<T> blocks = blocks_of_queries<T>(shape);
  for (std::int64_t i = 0; i < blocks.count; ++i) {
    T* const block = scratch.dq + (first + i) * blocks.block();
    scale_block(blocks, static_cast<T>(shape.scale), block);
    store_block(blocks, stored, block, i, dq, at);
  }
}

}  // namespace

template <class T>
std::int64_t attention_grad_workspace(const AttentionShape& shape) {
  return AttentionGradScratch<T>(shape, nullptr).bytes;
}

template <class T>
void attention_grad_of_group(const AttentionShape& shape, const StoredElements<T>& stored,
                             const AttentionGradTensors<T>& tensors, const HeadGroup& of,
                             std::byte* workspace) {
  const HeadBlocks<T> queries = blocks_of_queries<T>(shape),
                      keys = blocks_of_keys<T>(shape, of.keys);
  const AttentionGradScratch<T> scratch(shape, workspace);
  const std::int64_t group = shape.group(), head = of.kv_head * group;
  for (std::int64_t g = 0; g < group; ++g)
    load_queries(shape, stored, tensors, of, head + g, g * queries.count, scratch);
  const std::int64_t at = keys.offset(of.sample, of.kv_head);
  for (std::int64_t j = 0; j < keys.count; ++j) {
    load_keys(keys, stored, tensors, at, j, scratch);
    for (std::int64_t g = 0; g < group; ++g) {
      const Hiding<T> hide{shape, stored, tensors.mask, of, head + g};
      const auto [first, end] = query_blocks(shape, j);
      for (std::int64_t i = first; i < end; ++i)
        add_gradients(hide, keys, scratch, g * queries.count, i, j, tensors.d_mask);
    }
    store_block(keys, stored, scratch.dk, j, tensors.dk, at);
    store_block(keys, stored, scratch.dv, j, tensors.dv, at);
  }
  std::memset(scratch.dk, 0, static_cast<std::size_t>(keys.columns) * sizeof(T));
  for (void* const d : {tensors.dk, tensors.dv}) clear_unused(keys, stored, scratch.dk, d, at);
  for (std::int64_t g = 0; g < group; ++g)
    store_queries(shape, stored, g * queries.count, scratch, tensors.dq,
                  queries.offset(of.sample, head + g));
}

#define BELFRY_ATTENTION_GRAD_OF(T)                                                       \
  template std::int64_t attention_grad_workspace<T>(const AttentionShape&);               \
  template void attention_grad_of_group(const AttentionShape&, const StoredElements<T>&,  \
                                        const AttentionGradTensors<T>&, const HeadGroup&, \
                                        std::byte*);
BELFRY_ATTENTION_GRAD_OF(float)
BELFRY_ATTENTION_GRAD_OF(double)

}  // namespace belfry::kernels
