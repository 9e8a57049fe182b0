#include "belfry/ops/kernels/column_sums.h"

#include <algorithm>
#include <bit>

#include "belfry/framework/kernels/pointwise.h"
#include "belfry/framework/kernels/reduce.h"
#include "belfry/ops/kernels/functors.h"

namespace belfry::kernels {
namespace {

// The rows of a block: a power of two and at least a leaf, so that a block is a part of the tree.
std::int64_t rows_of_block(std::int64_t columns) {
  constexpr std::uint64_t kElements = 32768, kLeaf = 8;
  const std::uint64_t rows =
      kElements / std::max<std::uint64_t>(1, static_cast<std::uint64_t>(columns));
  return static_cast<std::int64_t>(std::max(kLeaf, std::bit_floor(rows)));
}

std::int64_t blocks_of_rows(std::int64_t rows, std::int64_t columns) {
  const std::int64_t block = rows_of_block(columns);
  return (rows + block - 1) / block;
}

template <class T>
void add_level(std::int64_t columns, const T* level, T* y) {
  map(functors::Add{}, 0, columns, y, level, static_cast<const T*>(y));
}

}  // namespace

std::int64_t column_sums_scratch(std::int64_t rows, std::int64_t columns) {
  const auto blocks = static_cast<std::uint64_t>(blocks_of_rows(rows, columns));
  return blocks <= 1 ? 0 : columns * static_cast<std::int64_t>(std::bit_width(blocks));
}

// After 2^k blocks their sum is on level k of `scratch`.
template <class T>
void column_sums_by_blocks(const T* x, std::int64_t rows, std::int64_t columns,
                           const std::function<void(std::int64_t, std::int64_t)>& make, T* y,
                           T* scratch) {
  const auto level = [&](int k) { return scratch + k * columns; };
  const std::int64_t block = rows_of_block(columns), blocks = blocks_of_rows(rows, columns);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = b * block, end = std::min(begin + block, rows);
    make(begin, end);
    column_sums(x + begin * columns, end - begin, columns, y, 0, columns);
    if (blocks == 1) return;
    int k = 0;
    for (; (b >> k & 1) != 0; ++k) add_level<T>(columns, level(k), y);
    std::copy_n(y, columns, level(k));
  }
  std::fill_n(y, columns, -T(0));  // the neutral element
  for (int k = 0; blocks >> k != 0; ++k)
    if ((blocks >> k & 1) != 0) add_level<T>(columns, level(k), y);
}

template void column_sums_by_blocks(const float*, std::int64_t, std::int64_t,
                                    const std::function<void(std::int64_t, std::int64_t)>&, float*,
                                    float*);
template void column_sums_by_blocks(const double*, std::int64_t, std::int64_t,
                                    const std::function<void(std::int64_t, std::int64_t)>&, double*,
                                    double*);

}  // namespace belfry::kernels
