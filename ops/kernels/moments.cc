#include "belfry/ops/kernels/moments.h"

#include <algorithm>
#include <bit>

#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/kernels/simd.h"

namespace belfry::kernels {
namespace {

// Adds value(row, c) over rows to sums[c]; four rows at a time, so that sums are loaded and stored
// less often. Not for BELFRY_KERNEL callers whose lambdas are not always_inline.
template <class T, class Value>
BELFRY_HD void add_rows(std::int64_t rows, std::int64_t channels, const Value& value, T* sums) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    BELFRY_INDEPENDENT
    for (std::int64_t c = 0; c < channels; ++c)
      sums[c] += (value(r, c) + value(r + 1, c)) + (value(r + 2, c) + value(r + 3, c));
  }
  for (; r < rows; ++r) {
    BELFRY_INDEPENDENT
    for (std::int64_t c = 0; c < channels; ++c) sums[c] += value(r, c);
  }
}

template <class T>
struct Element {
  const T* x;
  std::int64_t channels;
  BELFRY_HD T operator()(std::int64_t r, std::int64_t c) const { return x[r * channels + c]; }
};

template <class T>
struct Difference {
  const T *x, *from;
  std::int64_t channels;
  BELFRY_HD T operator()(std::int64_t r, std::int64_t c) const {
    return x[r * channels + c] - from[c];
  }
};

template <class T>
struct SquaredDifference {
  const T *x, *mean;
  std::int64_t channels;
  BELFRY_HD T operator()(std::int64_t r, std::int64_t c) const {
    const T d = x[r * channels + c] - mean[c];
    return d * d;
  }
};

template <class T>
struct Product {
  const T *dy, *x, *mean;
  std::int64_t channels;
  BELFRY_HD T operator()(std::int64_t r, std::int64_t c) const {
    return dy[r * channels + c] * (x[r * channels + c] - mean[c]);
  }
};

// Both results of a block: first [channels], then second [channels]. Means are summed as
// differences from the first row, so that a mean much larger than the deviation does not swallow
// it.
template <class T>
BELFRY_KERNEL void block_moments(const T* x, std::int64_t rows, std::int64_t channels, T* out) {
  T* const squares = out + channels;
  for (std::int64_t c = 0; c < 2 * channels; ++c) out[c] = 0;
  add_rows(rows, channels, Difference<T>{x, x, channels}, out);
  for (std::int64_t c = 0; c < channels; ++c) out[c] = x[c] + out[c] / static_cast<T>(rows);
  add_rows(rows, channels, SquaredDifference<T>{x, out, channels}, squares);
}

template <class T>
BELFRY_KERNEL void block_gradient_sums(const T* dy, const T* x, const T* mean, std::int64_t rows,
                                       std::int64_t channels, T* out) {
  for (std::int64_t c = 0; c < 2 * channels; ++c) out[c] = 0;
  add_rows(rows, channels, Element<T>{dy, channels}, out);
  add_rows(rows, channels, Product<T>{dy, x, mean, channels}, out + channels);
}

// left and right are (mean, sum of squared differences) of n and m rows.
template <class T>
BELFRY_KERNEL void combine_moments(std::int64_t channels, T n, T m, T* left, const T* right) {
  const T share = m / (n + m);
  for (std::int64_t c = 0; c < channels; ++c) {
    const T distance = right[c] - left[c];
    left[c] += distance * share;
    left[channels + c] += right[channels + c] + distance * distance * (n * share);
  }
}

template <class T>
BELFRY_KERNEL void add(std::int64_t count, const T* x, T* sums) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += x[i];
}

// block(begin, end, out) for every block of rows [begin, end) of `rows`, which begins at a block,
// then combine(n, m, left, right) up the tree, where both sides are complete. The result of all
// rows is at `out`; what waits for its right side lies there in between, each level behind the one
// above.
template <class T, class Block, class Combine>
void over_blocks(WorkRange part, std::int64_t rows, std::int64_t channels, const Block& block,
                 const Combine& combine, T* out) {
  const std::int64_t size = moment_block(channels);
  for (std::int64_t begin = part.begin; begin < part.end; begin += size) {
    // The sides of the tree to the right of which this block is, from the root.
    struct Side {
      std::int64_t first, middle, last;  // rows
    } sides[64];
    std::int64_t first = 0, last = (rows + size - 1) / size, level = 0, complete = 0;
    while (last - first > 1) {
      const std::int64_t middle = first + (last - first + 1) / 2, at = begin / size;
      if (at < middle) {
        last = middle;
        complete = 0;
        continue;
      }
      sides[level++] = {first * size, middle * size, std::min(last * size, rows)};
      first = middle;
      ++complete;
    }
    T* to = out + level * 2 * channels;
    block(begin, std::min(begin + size, rows), to);
    for (; complete > 0; --complete, to -= 2 * channels) {
      const Side& side = sides[--level];
      combine(side.middle - side.first, side.last - side.middle, to - 2 * channels, to);
    }
  }
}

}  // namespace

// Small enough for the first cache, which the second pass over a block reads, or, with many
// channels, the second; a few rows at least, so that combining blocks costs little.
std::int64_t moment_block(std::int64_t channels) {
  return std::max<std::int64_t>(16, 4096 / std::max<std::int64_t>(1, channels));
}

std::int64_t moment_scratch(std::int64_t rows, std::int64_t channels) {
  const std::int64_t size = moment_block(channels);
  const auto blocks = static_cast<std::uint64_t>((rows + size - 1) / size);
  return 2 * channels * (1 + std::bit_width(blocks));
}

template <class T>
void moments(const T* x, std::int64_t rows, std::int64_t channels, T* mean, T* squares,
             T* scratch) {
  over_blocks(
      {0, rows}, rows, channels,
      [&](std::int64_t begin, std::int64_t end, T* out) {
        block_moments(x + begin * channels, end - begin, channels, out);
      },
      [&](std::int64_t n, std::int64_t m, T* left, const T* right) {
        combine_moments(channels, static_cast<T>(n), static_cast<T>(m), left, right);
      },
      scratch);
  std::copy_n(scratch, channels, mean);
  std::copy_n(scratch + channels, channels, squares);
}

template <class T>
void add_gradient_sums(const T* dy, const T* x, const T* mean, std::int64_t begin, std::int64_t end,
                       std::int64_t rows, std::int64_t channels, T* scratch) {
  if (rows == 0) std::fill_n(scratch, 2 * channels, T(0));
  over_blocks(
      {begin, end}, rows, channels,
      [&](std::int64_t first, std::int64_t last, T* out) {
        block_gradient_sums(dy + first * channels, x + first * channels, mean, last - first,
                            channels, out);
      },
      [&](std::int64_t, std::int64_t, T* left, const T* right) { add(2 * channels, right, left); },
      scratch);
}

template <class T>
void gradient_sums(const T* dy, const T* x, const T* mean, std::int64_t rows, std::int64_t channels,
                   T* sum, T* product, T* scratch) {
  add_gradient_sums(dy, x, mean, 0, rows, rows, channels, scratch);
  std::copy_n(scratch, channels, sum);
  std::copy_n(scratch + channels, channels, product);
}

template void moments(const float*, std::int64_t, std::int64_t, float*, float*, float*);
template void moments(const double*, std::int64_t, std::int64_t, double*, double*, double*);
template void gradient_sums(const float*, const float*, const float*, std::int64_t, std::int64_t,
                            float*, float*, float*);
template void gradient_sums(const double*, const double*, const double*, std::int64_t, std::int64_t,
                            double*, double*, double*);
template void add_gradient_sums(const float*, const float*, const float*, std::int64_t,
                                std::int64_t, std::int64_t, std::int64_t, float*);
template void add_gradient_sums(const double*, const double*, const double*, std::int64_t,
                                std::int64_t, std::int64_t, std::int64_t, double*);

}  // namespace belfry::kernels
