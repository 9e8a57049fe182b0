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

// A head in blocks of padded rows.
template <class T>
struct HeadBlocks {
  explicit HeadBlocks(const AttentionShape& of)
      : shape(of),
        count((of.time + kAttentionBlock - 1) / kAttentionBlock),
        columns((of.head_dim + BlockLanes<T>::kCount - 1) / BlockLanes<T>::kCount *
                BlockLanes<T>::kCount) {}

  std::int64_t block() const { return kAttentionBlock * columns; }
  std::int64_t all() const { return count * block(); }
  // Rows of block i.
  std::int64_t rows(std::int64_t i) const {
    const std::int64_t left = shape.time - i * kAttentionBlock;
    return left < kAttentionBlock ? left : kAttentionBlock;
  }

  AttentionShape shape;
  std::int64_t count;    // blocks
  std::int64_t columns;  // head_dim, and zeros up to whole vectors
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
  const std::int64_t columns = head.shape.head_dim, rows = head.rows(i);
  if (rows < kAttentionBlock || columns < head.columns)
    std::memset(to, 0, static_cast<std::size_t>(head.block()) * sizeof(T));
  for (std::int64_t r = 0; r < rows; ++r)
    stored.load(x, at + (i * kAttentionBlock + r) * head.shape.width(), columns,
                to + r * head.columns);
}

template <class T>
void store_block(const HeadBlocks<T>& head, const StoredElements<T>& stored, const T* from,
                 std::int64_t i, void* x, std::int64_t at) {
  for (std::int64_t r = 0; r < head.rows(i); ++r)
    stored.store(from + r * head.columns, head.shape.head_dim, x,
                 at + (i * kAttentionBlock + r) * head.shape.width());
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
