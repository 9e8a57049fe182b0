#include "belfry/framework/kernels/math.h"
#include "belfry/ops/attention/attention_blocks_impl.h"
#include "belfry/ops/attention/attention_impl.h"

namespace belfry::kernels {
namespace {

// The state of a block's queries after some keys: the largest score; the sum of e^(score -
// largest), one part per lane; and the sum of values with these weights.
template <class T>
struct QueryBlock {
  T *largest, *sums, *y;
};

template <class T>
struct AttentionScratch {
  AttentionScratch(const HeadBlocks<T>& head, std::byte* workspace) {
    Carver<T> carver(workspace);
    keys = carver.take(head.all());
    values = carver.take(head.all());
    rows = carver.take(head.block());
    scores = carver.take(kAttentionBlock * kAttentionBlock);
    queries.largest = carver.take(kAttentionBlock);
    queries.sums = carver.take(kAttentionBlock * BlockLanes<T>::kCount);
    queries.y = carver.take(head.block());
    bytes = carver.bytes();
  }

  T *keys, *values;  // blocks; blocks of keys are transposed
  T *rows, *scores;
  QueryBlock<T> queries;
  std::int64_t bytes;
};

template <class T>
BELFRY_HD T largest_of(const T* scores) {
  constexpr std::int64_t kLanes = BlockLanes<T>::kCount;
  T lanes[kLanes];
  for (std::int64_t x = 0; x < kLanes; ++x) lanes[x] = scores[x];
  for (std::int64_t k = kLanes; k < kAttentionBlock; k += kLanes)
    for (std::int64_t x = 0; x < kLanes; ++x)
      lanes[x] = scores[k + x] > lanes[x] ? scores[k + x] : lanes[x];
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
    for (std::int64_t x = 0; x < half; ++x)
      lanes[x] = lanes[x + half] > lanes[x] ? lanes[x + half] : lanes[x];
  return lanes[0];
}

template <class T>
BELFRY_HD T sum_of_lanes(const T* from) {
  constexpr std::int64_t kLanes = BlockLanes<T>::kCount;
  T lanes[kLanes];
  for (std::int64_t x = 0; x < kLanes; ++x) lanes[x] = from[x];
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
    for (std::int64_t x = 0; x < half; ++x) lanes[x] += lanes[x + half];
  return lanes[0];
}

// Turns scores into weights e^(score - shift); multiplies `sums` and y, of earlier keys, by
// `factor`.
template <class T>
BELFRY_HD void weigh_row(T shift, T factor, std::int64_t columns, T* scores, T* sums, T* y) {
  constexpr std::int64_t kLanes = BlockLanes<T>::kCount;
  BELFRY_INDEPENDENT
  for (std::int64_t k = 0; k < kAttentionBlock; ++k) scores[k] = math::exp(scores[k] - shift);
  T lanes[kLanes];
  for (std::int64_t x = 0; x < kLanes; ++x) lanes[x] = sums[x] * factor;
  for (std::int64_t k = 0; k < kAttentionBlock; k += kLanes)
    for (std::int64_t x = 0; x < kLanes; ++x) lanes[x] += scores[k + x];
  for (std::int64_t x = 0; x < kLanes; ++x) sums[x] = lanes[x];
  for (std::int64_t c = 0; c < columns; ++c) y[c] *= factor;
}

// A step of the online softmax. If all scores so far are -inf, so is the largest. Then scores are
// not shifted, because the difference would be NaN for later keys.
template <class T>
BELFRY_KERNEL void weigh_scores(const QueryBlock<T>& queries, std::int64_t rows,
                                std::int64_t columns, T* scores) {
  T shift[kAttentionBlock], factor[kAttentionBlock];
  for (std::int64_t r = 0; r < rows; ++r) {
    T* const row = scores + r * kAttentionBlock;
    const T largest = largest_of(row);
    factor[r] = queries.largest[r];
    queries.largest[r] = largest > queries.largest[r] ? largest : queries.largest[r];
    shift[r] = queries.largest[r] == -math::Format<T>::kInfinity ? T(0) : queries.largest[r];
  }
  BELFRY_INDEPENDENT
  for (std::int64_t r = 0; r < rows; ++r) factor[r] = math::exp(factor[r] - shift[r]);
  for (std::int64_t r = 0; r < rows; ++r)
    weigh_row(shift[r], factor[r], columns, scores + r * kAttentionBlock,
              queries.sums + r * BlockLanes<T>::kCount, queries.y + r * columns);
}

template <class T>
BELFRY_KERNEL void forget_keys(const QueryBlock<T>& queries, std::int64_t block) {
  for (std::int64_t r = 0; r < kAttentionBlock; ++r)
    queries.largest[r] = -math::Format<T>::kInfinity;
  for (std::int64_t i = 0; i < kAttentionBlock * BlockLanes<T>::kCount; ++i) queries.sums[i] = 0;
  for (std::int64_t i = 0; i < block; ++i) queries.y[i] = 0;
}

// A query without keys has a sum of zero, and gets zeros.
template <class T>
BELFRY_KERNEL void divide_by_sums(const QueryBlock<T>& queries, std::int64_t rows,
                                  std::int64_t columns, bool may_see_none, T* log_sums) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T sum = sum_of_lanes(queries.sums + r * BlockLanes<T>::kCount);
    log_sums[r] = queries.largest[r] + math::log(sum);
    const T divisor = may_see_none && sum == 0 ? T(1) : sum;
    for (std::int64_t c = 0; c < columns; ++c) queries.y[r * columns + c] /= divisor;
  }
}

// Computes the queries of block i over the keys that they see.
template <class T>
void attend(const Hiding<T>& hide, const HeadBlocks<T>& head, const AttentionScratch<T>& scratch,
            std::int64_t i, std::int64_t rows) {
  forget_keys(scratch.queries, head.block());
  const auto [first, end] = key_blocks(hide.shape, i, head.used);
  for (std::int64_t j = first; j < end; ++j) {
    const bool diagonal = hide.diagonal(i, j);
    multiply_transposed(head, scratch.rows, scratch.keys + j * head.block(), rows, diagonal,
                        scratch.scores);
    hide(i, j, rows, scratch.scores);
    weigh_scores(scratch.queries, rows, head.columns, scratch.scores);
    add_over_keys(head, scratch.scores, scratch.values + j * head.block(), rows, diagonal,
                  scratch.queries.y);
  }
}

}  // namespace

template <class T>
std::int64_t attention_workspace(const AttentionShape& shape) {
  return AttentionScratch<T>(blocks_of_keys<T>(shape, shape.keys), nullptr).bytes;
}

template <class T>
void attention_of_group(const AttentionShape& shape, const StoredElements<T>& stored,
                        const AttentionTensors<T>& tensors, const HeadGroup& of,
                        std::byte* workspace) {
  const HeadBlocks<T> queries = blocks_of_queries<T>(shape), results = blocks_of_results<T>(shape),
                      keys = blocks_of_keys<T>(shape, of.keys);
  const AttentionScratch<T> scratch(keys, workspace);
  const std::int64_t from = keys.offset(of.sample, of.kv_head);
  for (std::int64_t j = 0; j < keys.count; ++j) {
    load_block(keys, stored, tensors.k, from, j, scratch.rows);
    transpose_block(keys, scratch.rows, scratch.keys + j * keys.block());
    load_block(keys, stored, tensors.v, from, j, scratch.values + j * keys.block());
  }
  for (std::int64_t g = 0; g < shape.group(); ++g) {
    const std::int64_t head = of.kv_head * shape.group() + g, at = queries.offset(of.sample, head);
    const Hiding<T> hide{shape, stored, tensors.mask, of, head};
    T* const log_sums = tensors.log_sums + (of.sample * shape.heads + head) * shape.queries;
    for (std::int64_t i = 0; i < queries.count; ++i) {
      load_block(queries, stored, tensors.q, at, i, scratch.rows);
      scale_block(queries, static_cast<T>(shape.scale), scratch.rows);
      attend(hide, keys, scratch, i, queries.rows(i));
      divide_by_sums(scratch.queries, queries.rows(i), queries.columns, shape.may_see_none,
                     log_sums + i * kAttentionBlock);
      store_block(results, stored, scratch.queries.y, i, tensors.y,
                  results.offset(of.sample, head));
    }
  }
}

#define BELFRY_ATTENTION_OF(T)                                                      \
  template std::int64_t attention_workspace<T>(const AttentionShape&);              \
  template void attention_of_group(const AttentionShape&, const StoredElements<T>&, \
                                   const AttentionTensors<T>&, const HeadGroup&, std::byte*);
BELFRY_ATTENTION_OF(float)
BELFRY_ATTENTION_OF(double)

}  // namespace belfry::kernels
