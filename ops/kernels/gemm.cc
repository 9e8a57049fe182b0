#include "belfry/ops/kernels/gemm.h"

#include <algorithm>

#include "belfry/framework/kernels/simd.h"

namespace belfry::kernels {
namespace {

constexpr std::int64_t kRows = 4;     // rows of a tile of C, which stays in registers
constexpr std::int64_t kDepth = 128;  // rows of a panel of B, which stays in the first cache

template <class T>
struct Tile {
  typedef T Vector __attribute__((vector_size(64)));
  static constexpr std::int64_t kLanes = 64 / sizeof(T);
  static constexpr std::int64_t kColumns = 2 * kLanes;
};

// Rows [p, p + depth) and columns [j, j + columns) of op(B), padded with zeros to a whole tile.
template <class T>
BELFRY_HD void pack(const GemmShape& s, const T* b, std::int64_t p, std::int64_t depth,
                    std::int64_t j, std::int64_t columns, T* panel) {
  constexpr std::int64_t kColumns = Tile<T>::kColumns;
  for (std::int64_t q = 0; q < depth; ++q) {
    T* row = panel + q * kColumns;
    if (s.transpose_b) {
      for (std::int64_t x = 0; x < columns; ++x) row[x] = b[(j + x) * s.row_b + p + q];
    } else {
      for (std::int64_t x = 0; x < columns; ++x) row[x] = b[(p + q) * s.row_b + j + x];
    }
    for (std::int64_t x = columns; x < kColumns; ++x) row[x] = 0;
  }
}

// Adds op(A)[i.., p..] times the panel to a tile of `kCount` rows.
template <std::int64_t kCount, class T>
BELFRY_HD void multiply(const GemmShape& s, const T* a, std::int64_t i, std::int64_t p,
                        std::int64_t depth, const T* panel, T* tile) {
  using Vector = typename Tile<T>::Vector;
  constexpr std::int64_t kColumns = Tile<T>::kColumns, kLanes = Tile<T>::kLanes;
  const std::int64_t step_row = s.transpose_a ? 1 : s.row_a;
  const std::int64_t step_depth = s.transpose_a ? s.row_a : 1;
  a += i * step_row + p * step_depth;
  Vector sums[kCount][2];
  for (std::int64_t r = 0; r < kCount; ++r)
    __builtin_memcpy(sums[r], tile + r * kColumns, sizeof sums[r]);
  for (std::int64_t q = 0; q < depth; ++q) {
    Vector low, high;
    __builtin_memcpy(&low, panel + q * kColumns, sizeof low);
    __builtin_memcpy(&high, panel + q * kColumns + kLanes, sizeof high);
    for (std::int64_t r = 0; r < kCount; ++r) {
      const T factor = a[r * step_row + q * step_depth];
      sums[r][0] += low * factor;
      sums[r][1] += high * factor;
    }
  }
  for (std::int64_t r = 0; r < kCount; ++r)
    __builtin_memcpy(tile + r * kColumns, sums[r], sizeof sums[r]);
}

template <class T>
BELFRY_KERNEL void blocked(const GemmShape& s, const T* a, const T* b, T* c) {
  constexpr std::int64_t kColumns = Tile<T>::kColumns;
  alignas(64) T panel[kDepth * kColumns];
  alignas(64) T tile[kRows * kColumns] = {};
  for (std::int64_t j = 0; j < s.n; j += kColumns) {
    const std::int64_t columns = s.n - j < kColumns ? s.n - j : kColumns;
    for (std::int64_t p = 0; p < s.k; p += kDepth) {
      const std::int64_t depth = s.k - p < kDepth ? s.k - p : kDepth;
      pack(s, b, p, depth, j, columns, panel);
      for (std::int64_t i = 0; i < s.m; i += kRows) {
        const std::int64_t rows = s.m - i < kRows ? s.m - i : kRows;
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t x = 0; x < columns; ++x)
            tile[r * kColumns + x] = p == 0 ? T(0) : c[(i + r) * s.n + j + x];
        if (rows == kRows) {
          multiply<kRows>(s, a, i, p, depth, panel, tile);
        } else {
          for (std::int64_t r = 0; r < rows; ++r)
            multiply<1>(s, a, i + r, p, depth, panel, tile + r * kColumns);
        }
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t x = 0; x < columns; ++x)
            c[(i + r) * s.n + j + x] = tile[r * kColumns + x];
      }
    }
  }
}

}  // namespace

template <class T>
void gemm(const GemmShape& s, const T* a, const T* b, T* c) {
  if (s.k == 0) std::fill_n(c, s.m * s.n, T(0));
  blocked(s, a, b, c);
}

template void gemm(const GemmShape&, const float*, const float*, float*);
template void gemm(const GemmShape&, const double*, const double*, double*);

}  // namespace belfry::kernels
