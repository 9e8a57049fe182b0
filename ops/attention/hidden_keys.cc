// Which blocks of keys a block of queries sees, and which scores of two blocks count.
#include <algorithm>

#include "belfry/framework/kernels/math.h"
#include "belfry/ops/attention/attention_blocks_impl.h"

namespace belfry::kernels {
namespace {

// Scores before `first` and from `end` on become -infinity.
template <class T>
BELFRY_KERNEL void keep_keys(std::int64_t first, std::int64_t end, T* scores) {
  for (std::int64_t k = 0; k < kAttentionBlock; ++k)
    scores[k] = k >= first && k < end ? scores[k] : -math::Format<T>::kInfinity;
}

template <class T>
BELFRY_KERNEL void keep_masked(const bool* mask, std::int64_t count, T* scores) {
  for (std::int64_t k = 0; k < count; ++k)
    scores[k] = mask[k] ? scores[k] : -math::Format<T>::kInfinity;
}

// A key that -infinity hides counts for nothing, whatever its score.
template <class T>
BELFRY_KERNEL void add_mask(const T* mask, std::int64_t count, T* scores) {
  for (std::int64_t k = 0; k < count; ++k)
    scores[k] = mask[k] == -math::Format<T>::kInfinity ? mask[k] : scores[k] + mask[k];
}

}  // namespace

BlockRange key_blocks(const AttentionShape& shape, std::int64_t i, std::int64_t keys) {
  const std::int64_t count = (keys + kAttentionBlock - 1) / kAttentionBlock;
  const std::int64_t first = shape.first_key(i * kAttentionBlock) / kAttentionBlock;
  const std::int64_t end = shape.causal ? std::min(i + 1, count) : count;
  return {std::min(first, end), end};
}

BlockRange query_blocks(const AttentionShape& shape, std::int64_t j) {
  const std::int64_t count = (shape.queries + kAttentionBlock - 1) / kAttentionBlock;
  const std::int64_t first = shape.causal ? std::min(j, count) : 0;
  // The last key is in the window of this query, and of none after it.
  const std::int64_t last = (j + 1) * kAttentionBlock - 1 + shape.window - 1;
  const std::int64_t end = shape.window > 0 ? std::min(count, last / kAttentionBlock + 1) : count;
  return {first, std::max(first, end)};
}

template <class T>
BlockRange Hiding<T>::seen(std::int64_t query, std::int64_t j) const {
  const std::int64_t from = j * kAttentionBlock;
  return {std::max<std::int64_t>(shape.first_key(query) - from, 0),
          std::min(shape.end_key(query, of.keys) - from, kAttentionBlock)};
}

template <class T>
void Hiding<T>::operator()(std::int64_t i, std::int64_t j, std::int64_t rows, T* scores) const {
  const std::int64_t from = j * kAttentionBlock,
                     count = std::min(shape.keys - from, kAttentionBlock);
  T added[kAttentionBlock];
  for (std::int64_t r = 0; r < rows; ++r, scores += kAttentionBlock) {
    const std::int64_t query = i * kAttentionBlock + r;
    if (shape.mask.kind == MaskKind::kSeen) {
      keep_masked(static_cast<const bool*>(mask) + row(query) + from, count, scores);
    } else if (shape.mask.kind == MaskKind::kAdded) {
      stored.load(mask, row(query) + from, count, added);
      add_mask(added, count, scores);
    }
    const auto [first, end] = seen(query, j);
    if (first > 0 || end < kAttentionBlock) keep_keys(first, end, scores);
  }
}

template struct Hiding<float>;
template struct Hiding<double>;

}  // namespace belfry::kernels
