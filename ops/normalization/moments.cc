#include "belfry/ops/normalization/moments.h"

#include <algorithm>
#include <bit>

#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/kernels/functors.h"

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

// Writes both results of a block to `out`: means [channels], then squares [channels]. Means are
// summed as differences from the first row, so that a mean much larger than the deviation does not
// swallow it.
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

template <class T>
BELFRY_KERNEL void mask_gradient(const T* dy, const T* y, std::int64_t count, T* g) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) g[i] = functors::ReluGrad{}(dy[i], y[i]);
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

// Calls block(begin, end, out) for every block of rows [first, last), then combine(n, m, left,
// right) up the tree. The result is at `out`; each lower level keeps its right side after it.
template <class T, class Block, class Combine>
void over_blocks(std::int64_t first, std::int64_t last, std::int64_t channels, const Block& block,
                 const Combine& combine, T* out) {
  const std::int64_t size = moment_block(channels), blocks = (last - first + size - 1) / size;
  if (blocks <= 1) return block(first, last, out);
  const std::int64_t middle = first + (blocks + 1) / 2 * size;
  T* const right = out + 2 * channels;
  over_blocks(first, middle, channels, block, combine, out);
  over_blocks(middle, last, channels, block, combine, right);
  combine(middle - first, last - middle, out, right);
}

}  // namespace

// A block is small enough for the second pass to read it from the L1 cache, or from L2 with many
// channels. It has a few rows at least, so that combining blocks costs little.
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
      0, rows, channels,
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

namespace {

// gradient(begin, end) returns the gradient of rows [begin, end).
template <class T, class Gradient>
void sums_over_blocks(const Gradient& gradient, const T* x, const T* mean, std::int64_t rows,
                      std::int64_t channels, T* sum, T* product, T* scratch) {
  over_blocks(
      0, rows, channels,
      [&](std::int64_t begin, std::int64_t end, T* out) {
        block_gradient_sums(gradient(begin, end), x + begin * channels, mean, end - begin, channels,
                            out);
      },
      [&](std::int64_t, std::int64_t, T* left, const T* right) { add(2 * channels, right, left); },
      scratch);
  std::copy_n(scratch, channels, sum);
  std::copy_n(scratch + channels, channels, product);
}

}  // namespace

template <class T>
void gradient_sums(const T* dy, const T* x, const T* mean, std::int64_t rows, std::int64_t channels,
                   T* sum, T* product, T* scratch) {
  const auto gradient = [&](std::int64_t begin, std::int64_t) { return dy + begin * channels; };
  sums_over_blocks(gradient, x, mean, rows, channels, sum, product, scratch);
}

template <class T>
void relu_gradient_sums(const T* dy, const T* y, const T* x, const T* mean, std::int64_t rows,
                        std::int64_t channels, T* g, T* sum, T* product, T* scratch) {
  const auto gradient = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * channels;
    mask_gradient(dy + at, y + at, (end - begin) * channels, g + at);
    return static_cast<const T*>(g + at);
  };
  sums_over_blocks(gradient, x, mean, rows, channels, sum, product, scratch);
}

template void moments(const float*, std::int64_t, std::int64_t, float*, float*, float*);
template void moments(const double*, std::int64_t, std::int64_t, double*, double*, double*);
template void gradient_sums(const float*, const float*, const float*, std::int64_t, std::int64_t,
                            float*, float*, float*);
template void gradient_sums(const double*, const double*, const double*, std::int64_t, std::int64_t,
                            double*, double*, double*);
template void relu_gradient_sums(const float*, const float*, const float*, const float*,
                                 std::int64_t, std::int64_t, float*, float*, float*, float*);
template void relu_gradient_sums(const double*, const double*, const double*, const double*,
                                 std::int64_t, std::int64_t, double*, double*, double*, double*);

}  // namespace belfry::kernels
