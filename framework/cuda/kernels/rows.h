// Kernels whose blocks take one row of the last axis each, as in softmax, or several, as in layer
// normalisation.
#pragma once
#include <type_traits>

#include "belfry/framework/base/shape.h"
#include "belfry/framework/cuda/kernels/fold.h"

namespace belfry::cuda {

// Gives R rows to a block of kFoldThreads threads, as fold() takes. R is 1, or kWarpsPerBlock for
// short rows, each of which gets a warp.
template <int R>
struct RowBlocks {
  static constexpr int kThreads = kFoldThreads / R;  // of a row
  std::int64_t rows, columns;

  Grid grid() const {
    return {.blocks = columns == 0 ? 0 : (rows + R - 1) / R, .threads = kFoldThreads};
  }
  BELFRY_HD std::int64_t first(const Block& block) const { return block.index * R; }
  // Calls f(row of the block, i) for every N-th i < columns; N divides columns.
  template <int N = 1, class F>
  BELFRY_HD void each(const Block& block, const F& f) const {
    block.each([&](int thread) {
      const int row = thread / kThreads;
      if (first(block) + row >= rows) return;
      for (std::int64_t i = thread % kThreads * N; i < columns; i += kThreads * N) f(row, i);
    });
  }
};
// A block for each row.
inline RowBlocks<1> rows_of(const Shape& x) { return {x.product(0, x.rank() - 1), x.back()}; }

template <class T>
struct RowShared {
  FoldShared<T> fold;
  T largest, sum;
};

// Sets shared.largest to the largest x(i), i < n.
template <class T, class X>
BELFRY_HD void find_largest(const Block& block, RowShared<T>& shared, const X& x, std::int64_t n) {
  fold(block, shared.fold, kernels::Max{}, 0, n, x);
  block.each([&](int thread) {
    if (thread == 0) shared.largest = shared.fold.total;
  });
}

// Sets shared.sum to the sum of value(i), i < n. Sums of chunks are added one after the other, as
// on hosts. One thread calls chunk(number, its sum).
template <class T, class Value, class Chunk>
BELFRY_HD void sum_chunks(const Block& block, RowShared<T>& shared, std::int64_t n,
                          const Value& value, const Chunk& chunk) {
  block.each([&](int thread) {
    if (thread == 0) shared.sum = 0;
  });
  for (std::int64_t first = 0; first < n; first += kChunk) {
    fold(block, shared.fold, kernels::Add{}, first, first + kChunk < n ? first + kChunk : n, value);
    block.each([&](int thread) {
      if (thread > 0) return;
      shared.sum += shared.fold.total;
      chunk(static_cast<std::uint32_t>(first / kChunk), shared.fold.total);
    });
  }
}

inline constexpr int kWarpsPerBlock = kFoldThreads / 32;
// The most columns of a short row of T: 4 KiB.
template <class T>
inline constexpr std::int64_t kShortRowColumns = 4096 / static_cast<int>(sizeof(T));
static_assert(kShortRowColumns<float> <= kChunk);

template <class T, int R>
struct RowFolds {
  T few[R][32];
};
template <class T>
struct RowFolds<T, 1> {
  FoldShared<T> fold;
};

// Folds value(row of the block, i) for i < columns, as fold() does. One thread of each row calls
// done(row of the block, total).
template <class Op, class T, int R, class Value, class Done>
BELFRY_HD void fold_rows(const Block& block, RowFolds<T, R>& shared, Op op, const RowBlocks<R>& by,
                         const Value& value, const Done& done) {
  using kernels::fold8;
  if constexpr (R == 1) {
    fold(block, shared.fold, op, 0, by.columns, [&](std::int64_t i) { return value(0, i); });
    block.each([&](int thread) {
      if (thread == 0) done(0, shared.fold.total);
    });
  } else {  // one chunk: half of the warp takes even groups of 128 terms, the other odd ones
    static_assert(RowBlocks<R>::kThreads == 32);
    const auto exists = [&](int row) { return by.first(block) + row < by.rows; };
    const int columns = static_cast<int>(by.columns);
    block.each([&](int thread) {
      const int row = thread / 32, half = thread % 32 / 16;
      if (!exists(row)) return;
      const auto group = [&](int number) {
        const int from = number * 128 + thread % 16;
        constexpr T kNeutral = Op::template kNeutral<T>;
        if (number * 128 >= kShortRowColumns<T> || from >= columns) return kNeutral;
        T x[8];
        for (int j = 0; j < 8; ++j)
          x[j] = from + j * 16 < columns ? value(row, from + j * 16) : kNeutral;
        return fold8(op, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]);
      };
      shared.few[row][thread % 32] =
          op(op(group(half), group(half + 4)), op(group(half + 2), group(half + 6)));
    });
    block.each([&](int thread) {
      const int row = thread / 32;
      if (thread % 32 > 0 || !exists(row)) return;
      const auto x = [&](int i) { return op(shared.few[row][i], shared.few[row][i + 16]); };
      const T even = fold8(op, x(0), x(2), x(4), x(6), x(8), x(10), x(12), x(14));
      const T odd = fold8(op, x(1), x(3), x(5), x(7), x(9), x(11), x(13), x(15));
      done(row, op(even, odd));
    });
  }
}

}  // namespace belfry::cuda
