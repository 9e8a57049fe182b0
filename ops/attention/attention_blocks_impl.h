// Small dense blocks of attention: their products, and how a head is cut into blocks.
#pragma once
#include <cstdint>
#include <cstring>

#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/attention/attention_impl.h"

namespace belfry::kernels {

// Columns of blocks come in lanes of 64 bytes, the widest vectors.
template <class T>
struct BlockLanes {
  static constexpr std::int64_t kCount = 64 / sizeof(T);
};

// Queries of a block, or keys.
inline constexpr std::int64_t kAttentionBlock = 64;

// A head in blocks of padded rows, of which the first `used` are read and written.
template <class T>
struct HeadBlocks {
  HeadBlocks(std::int64_t of_time, std::int64_t of_used, std::int64_t of_step, std::int64_t of_dim)
      : time(of_time),
        used(of_used),
        step(of_step),
        head_dim(of_dim),
        count((of_used + kAttentionBlock - 1) / kAttentionBlock),
        columns((of_dim + BlockLanes<T>::kCount - 1) / BlockLanes<T>::kCount *
                BlockLanes<T>::kCount) {}

  std::int64_t block() const { return kAttentionBlock * columns; }
  std::int64_t all() const { return count * block(); }
  // Rows of block i.
  std::int64_t rows(std::int64_t i) const {
    const std::int64_t left = used - i * kAttentionBlock;
    return left < kAttentionBlock ? left : kAttentionBlock;
  }
  // The offset of element 0 of a head at time 0.
  std::int64_t offset(std::int64_t sample, std::int64_t head) const {
    return sample * time * step + head * head_dim;
  }

  std::int64_t time, used;
  std::int64_t step;  // elements from one time to the next
  std::int64_t head_dim;
  std::int64_t count;    // blocks
  std::int64_t columns;  // head_dim, and zeros up to whole vectors
};

template <class T>
HeadBlocks<T> blocks_of_queries(const AttentionShape& shape) {
  return {shape.queries, shape.queries, shape.q_step(), shape.head_dim};
}
// Of results and their gradients, whose blocks are as large as those of queries.
template <class T>
HeadBlocks<T> blocks_of_results(const AttentionShape& shape) {
  return {shape.queries, shape.queries, shape.y_step(), shape.head_dim};
}
template <class T>
HeadBlocks<T> blocks_of_keys(const AttentionShape& shape, std::int64_t used) {
  return {shape.keys, used, shape.kv_step(), shape.head_dim};
}

// Blocks [first, end).
struct BlockRange {
  std::int64_t first, end;
};
// Of keys that some query of block i sees.
BlockRange key_blocks(const AttentionShape& shape, std::int64_t i, std::int64_t keys);
// Of queries that see some key of block j.
BlockRange query_blocks(const AttentionShape& shape, std::int64_t j);

// Hides scores of a block of queries with a block of keys by -infinity, and adds the mask.
template <class T>
struct Hiding {
  const AttentionShape& shape;
  const StoredElements<T>& stored;
  const void* mask;
  HeadGroup of;
  std::int64_t head;

  // Whether keys have the times of the queries, and those after a query are not seen.
  bool diagonal(std::int64_t i, std::int64_t j) const { return shape.causal && i == j; }
  // The offset of the mask of a query.
  std::int64_t row(std::int64_t query) const { return shape.mask.at(of.sample, head, query); }
  // The keys of block j that a query sees, if the mask lets it.
  BlockRange seen(std::int64_t query, std::int64_t j) const;
  void operator()(std::int64_t i, std::int64_t j, std::int64_t rows, T* scores) const;
};

// Hands out scratch memory; without a base it only counts.
template <class T>
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  T* take(std::int64_t count) {
    T* const result = base_ ? reinterpret_cast<T*>(base_ + bytes_) : nullptr;
    bytes_ += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    return result;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  std::int64_t bytes_ = 0;
};

// Loads block i of the head at `at` of a tensor, with zeros after the head's end.
template <class T>
void load_block(const HeadBlocks<T>& head, const StoredElements<T>& stored, const void* x,
                std::int64_t at, std::int64_t i, T* to) {
  const std::int64_t columns = head.head_dim, rows = head.rows(i);
  if (rows < kAttentionBlock || columns < head.columns)
    std::memset(to, 0, static_cast<std::size_t>(head.block()) * sizeof(T));
  for (std::int64_t r = 0; r < rows; ++r)
    stored.load(x, at + (i * kAttentionBlock + r) * head.step, columns, to + r * head.columns);
}

template <class T>
void store_block(const HeadBlocks<T>& head, const StoredElements<T>& stored, const T* from,
                 std::int64_t i, void* x, std::int64_t at) {
  for (std::int64_t r = 0; r < head.rows(i); ++r)
    stored.store(from + r * head.columns, head.head_dim, x,
                 at + (i * kAttentionBlock + r) * head.step);
}

// Writes zeros, of which `zeros` has a row, after the used rows.
template <class T>
void clear_unused(const HeadBlocks<T>& head, const StoredElements<T>& stored, const T* zeros,
                  void* x, std::int64_t at) {
  for (std::int64_t t = head.used; t < head.time; ++t)
    stored.store(zeros, head.head_dim, x, at + t * head.step);
}

// Loops over blocks, in attention_blocks.cc. `diagonal`: keys have the times of the queries, and
// keys after a query do not count.

template <class T>
void scale_block(const HeadBlocks<T>& head, T factor, T* x);

// to [head_dim, kAttentionBlock] = x transposed.
template <class T>
void transpose_block(const HeadBlocks<T>& head, const T* x, T* to);

// scores [kAttentionBlock, kAttentionBlock] = x times `transposed`, for `rows` rows.
template <class T>
void multiply_transposed(const HeadBlocks<T>& head, const T* x, const T* transposed,
                         std::int64_t rows, bool diagonal, T* scores);

// y += weights times x: sums over keys.
template <class T>
void add_over_keys(const HeadBlocks<T>& head, const T* weights, const T* x, std::int64_t rows,
                   bool diagonal, T* y);

// y += weights, transposed, times x: sums over `rows` queries.
template <class T>
void add_over_queries(const HeadBlocks<T>& head, const T* weights, const T* x, std::int64_t rows,
                      bool diagonal, T* y);

}  // namespace belfry::kernels
