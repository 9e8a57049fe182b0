#include "belfry/framework/kernels/reduce.h"

#include "belfry/framework/kernels/fold8.h"

namespace belfry::kernels {
namespace {

// y[i] = fold8 of x[i], x[i + n], ..., x[i + 7 n], for i < n.
template <int n, class Op, class T>
BELFRY_HD void fold_to(Op op, const T* x, T* y) {
  for (int i = 0; i < n; ++i) {
    y[i] = fold8(op, x[i], x[i + n], x[i + 2 * n], x[i + 3 * n], x[i + 4 * n], x[i + 5 * n],
                 x[i + 6 * n], x[i + 7 * n]);
  }
}

template <class Op, class T>
BELFRY_HD void fill_neutral(T* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = Op::template kNeutral<T>;
}

constexpr int kLanes = 16;
constexpr int kGroup = 8 * kLanes;
constexpr int kReduceBlock = 8 * kGroup;

// A group of n < 128 terms; missing ones are neutral.
template <class Op, class T>
BELFRY_HD void fold_short_group(Op op, const T* x, std::int64_t n, T* y) {
  T neutral[kLanes];
  T last[kLanes];
  fill_neutral<Op>(neutral, kLanes);
  fill_neutral<Op>(last, kLanes);
  const std::int64_t full = n / kLanes;
  for (std::int64_t i = full * kLanes; i < n; ++i) last[i - full * kLanes] = x[i];
  const T* part[8];
  for (int k = 0; k < 8; ++k) part[k] = k < full ? x + k * kLanes : k == full ? last : neutral;
  for (int i = 0; i < kLanes; ++i) {
    y[i] = fold8(op, part[0][i], part[1][i], part[2][i], part[3][i], part[4][i], part[5][i],
                 part[6][i], part[7][i]);
  }
}

// A block of n <= 1024 terms: each group of 128 is folded to 16 lanes, the lanes of the groups to
// 16, these to one. Missing terms and groups are neutral.
template <class Op, class T>
BELFRY_HD T fold_block(Op op, const T* x, std::int64_t n) {
  T lanes[kGroup];
  std::int64_t groups = n / kGroup;
  for (std::int64_t g = 0; g < groups; ++g) fold_to<kLanes>(op, x + g * kGroup, lanes + g * kLanes);
  if (const std::int64_t rest = n % kGroup; rest > 0 || n == 0) {
    fold_short_group(op, x + groups * kGroup, rest, lanes + groups * kLanes);
    ++groups;
  }
  T y[kLanes];
  if (groups > 1) {
    fill_neutral<Op>(lanes + groups * kLanes, kGroup - groups * kLanes);
    fold_to<kLanes>(op, lanes, y);
  } else {
    for (int i = 0; i < kLanes; ++i) y[i] = lanes[i];
  }
  T z[2];
  fold_to<2>(op, y, z);
  return op(z[0], z[1]);
}

// Adds a stream of rows of up to kWidth values pairwise: after 2^k rows, one result on level k.
template <class Op, class T, int kWidth>
class PairwiseRows {
 public:
  BELFRY_HD explicit PairwiseRows(std::int64_t width) : width_(width) {}

  // Overwrites `row`.
  BELFRY_HD void add(Op op, T* row) {
    int level = 0;
    for (; (count_ >> level & 1) != 0; ++level) {
      for (std::int64_t i = 0; i < width_; ++i) row[i] = op(levels_[level][i], row[i]);
    }
    for (std::int64_t i = 0; i < width_; ++i) levels_[level][i] = row[i];
    ++count_;
  }

  BELFRY_HD void finish(Op op, T* total) {
    fill_neutral<Op>(total, width_);
    for (int level = 0; level < kLevels; ++level) {
      if ((count_ >> level & 1) == 0) continue;
      for (std::int64_t i = 0; i < width_; ++i) total[i] = op(levels_[level][i], total[i]);
    }
  }

 private:
  static constexpr int kLevels = 32;
  T levels_[kLevels][kWidth];
  std::uint64_t count_ = 0;
  std::int64_t width_;
};

template <class Op, class T>
BELFRY_HD T fold(Op op, const T* x, std::int64_t n) {
  if (n <= kReduceBlock) return fold_block(op, x, n);
  PairwiseRows<Op, T, 1> blocks(1);
  for (std::int64_t i = 0; i < n; i += kReduceBlock) {
    T block = fold_block(op, x + i, n - i < kReduceBlock ? n - i : kReduceBlock);
    blocks.add(op, &block);
  }
  T total;
  blocks.finish(op, &total);
  return total;
}

template <class Op, class T>
BELFRY_KERNEL void fold_rows(Op op, const T* x, std::int64_t columns, T* y, std::int64_t begin,
                             std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) y[r] = fold(op, x + r * columns, columns);
}

// Columns are taken in tiles, so that the levels of the tree stay in cache.
template <class T>
BELFRY_KERNEL void fold_columns(const T* x, std::int64_t rows, std::int64_t columns, T* y,
                                std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kTile = 2048 / sizeof(T);
  T neutral[kTile];
  fill_neutral<Add>(neutral, kTile);
  for (std::int64_t c = begin; c < end; c += kTile) {
    const std::int64_t width = end - c < kTile ? end - c : kTile;
    PairwiseRows<Add, T, kTile> blocks(width);
    for (std::int64_t r = 0; r < rows; r += 8) {
      const T* row[8];
      for (int k = 0; k < 8; ++k) row[k] = r + k < rows ? x + (r + k) * columns + c : neutral;
      T block[kTile];
      for (std::int64_t j = 0; j < width; ++j) {
        block[j] = fold8(Add{}, row[0][j], row[1][j], row[2][j], row[3][j], row[4][j], row[5][j],
                         row[6][j], row[7][j]);
      }
      blocks.add(Add{}, block);
    }
    blocks.finish(Add{}, y + c);
  }
}

}  // namespace

template <class T>
T sum(const T* x, std::int64_t n) {
  T total;
  fold_rows(Add{}, x, n, &total, 0, 1);
  return total;
}

template <class T>
void row_sums(const T* x, std::int64_t columns, T* y, std::int64_t begin, std::int64_t end) {
  fold_rows(Add{}, x, columns, y, begin, end);
}

template <class T>
void row_maxima(const T* x, std::int64_t columns, T* y, std::int64_t begin, std::int64_t end) {
  fold_rows(Max{}, x, columns, y, begin, end);
}

template <class T>
void column_sums(const T* x, std::int64_t rows, std::int64_t columns, T* y, std::int64_t begin,
                 std::int64_t end) {
  fold_columns(x, rows, columns, y, begin, end);
}

template float sum(const float*, std::int64_t);
template double sum(const double*, std::int64_t);
template void row_sums(const float*, std::int64_t, float*, std::int64_t, std::int64_t);
template void row_sums(const double*, std::int64_t, double*, std::int64_t, std::int64_t);
template void row_maxima(const float*, std::int64_t, float*, std::int64_t, std::int64_t);
template void row_maxima(const double*, std::int64_t, double*, std::int64_t, std::int64_t);
template void column_sums(const float*, std::int64_t, std::int64_t, float*, std::int64_t,
                          std::int64_t);
template void column_sums(const double*, std::int64_t, std::int64_t, double*, std::int64_t,
                          std::int64_t);

}  // namespace belfry::kernels
