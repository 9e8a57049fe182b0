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
BELFRY_HD void hide_later_keys(std::int64_t query, T* scores) {
  for (std::int64_t k = 0; k < kAttentionBlock; ++k)
    scores[k] = k <= query ? scores[k] : -math::Format<T>::kInfinity;
}

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
BELFRY_KERNEL void weigh_scores(const QueryBlock<T>& queries, std::int64_t rows, bool diagonal,
                                std::int64_t columns, T* scores) {
  T shift[kAttentionBlock], factor[kAttentionBlock];
  for (std::int64_t r = 0; r < rows; ++r) {
    T* const row = scores + r * kAttentionBlock;
    if (diagonal) hide_later_keys(r, row);
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

template <class T>
BELFRY_KERNEL void divide_by_sums(const QueryBlock<T>& queries, std::int64_t rows,
                                  std::int64_t columns, T* log_sums) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T sum = sum_of_lanes(queries.sums + r * BlockLanes<T>::kCount);
    log_sums[r] = queries.largest[r] + math::log(sum);
    for (std::int64_t c = 0; c < columns; ++c) queries.y[r * columns + c] /= sum;
  }
}

// Computes the queries of block i over the keys of blocks up to i.
template <class T>
void attend(const HeadBlocks<T>& head, const AttentionScratch<T>& scratch, std::int64_t i) {
  const std::int64_t rows = head.rows(i);
  forget_keys(scratch.queries, head.block());
  for (std::int64_t j = 0; j <= i; ++j) {
    multiply_transposed(head, scratch.rows, scratch.keys + j * head.block(), rows, j == i,
                        scratch.scores);
    weigh_scores(scratch.queries, rows, j == i, head.columns, scratch.scores);
    add_over_keys(head, scratch.scores, scratch.values + j * head.block(), rows, j == i,
                  scratch.queries.y);
  }
}

}  // namespace

template <class T>
std::int64_t attention_workspace(const AttentionShape& shape) {
  return AttentionScratch<T>(HeadBlocks<T>(shape), nullptr).bytes;
}

template <class T>
void attention_head(const AttentionShape& shape, const StoredElements<T>& stored,
                    const AttentionTensors& tensors, std::int64_t at, T* log_sums,
                    std::byte* workspace) {
  const HeadBlocks<T> head(shape);
  const AttentionScratch<T> scratch(head, workspace);
  for (std::int64_t j = 0; j < head.count; ++j) {
    load_block(head, stored, tensors.k, at, j, scratch.rows);
    transpose_block(head, scratch.rows, scratch.keys + j * head.block());
    load_block(head, stored, tensors.v, at, j, scratch.values + j * head.block());
  }
  for (std::int64_t i = 0; i < head.count; ++i) {
    load_block(head, stored, tensors.q, at, i, scratch.rows);
    scale_block(head, static_cast<T>(shape.scale), scratch.rows);
    attend(head, scratch, i);
    divide_by_sums(scratch.queries, head.rows(i), head.columns, log_sums + i * kAttentionBlock);
    store_block(head, stored, scratch.queries.y, i, tensors.y, at);
  }
}

template std::int64_t attention_workspace<float>(const AttentionShape&);
template std::int64_t attention_workspace<double>(const AttentionShape&);
template void attention_head(const AttentionShape&, const StoredElements<float>&,
                             const AttentionTensors&, std::int64_t, float*, std::byte*);
template void attention_head(const AttentionShape&, const StoredElements<double>&,
                             const AttentionTensors&, std::int64_t, double*, std::byte*);

}  // namespace belfry::kernels
