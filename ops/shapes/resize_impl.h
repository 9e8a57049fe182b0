// Where bilinear resizing takes its pixels.
#pragma once
#include <cstdint>

#include "belfry/framework/kernels/simd.h"

namespace belfry {

// The two pixels between which a pixel of the result lies, and their weights.
template <class T>
struct PixelPair {
  std::int64_t low, high;
  T low_weight, high_weight;

  // The weight of pixel j, if it is one of them.
  BELFRY_HD bool has(std::int64_t j) const { return j == low || j == high; }
  BELFRY_HD T weight(std::int64_t j) const {
    return (j == low ? low_weight : T(0)) + (j == high ? high_weight : T(0));
  }
};

// n pixels of a row or column, resized to `size`.
struct ResizedAxis {
  std::int64_t n, size;

  template <class T>
  BELFRY_HD PixelPair<T> pair(std::int64_t i) const {
    const T place = (T(i) + T(0.5)) * (T(n) / T(size)) - T(0.5);
    const T inside = place < T(0) ? T(0) : place;
    const auto floor = static_cast<std::int64_t>(inside);
    const std::int64_t low = floor < n - 1 ? floor : n - 1;
    const T part = inside - T(low), weight = part > T(1) ? T(1) : part;
    return {low, low < n - 1 ? low + 1 : low, T(1) - weight, weight};
  }

  // All pixels of the result that take pixel j are in [first_taking(j), end_taking(j)).
  BELFRY_HD std::int64_t first_taking(std::int64_t j) const {
    const std::int64_t first = (2 * j - 1) * size / (2 * n) - 2;
    return first < 0 ? 0 : first;
  }
  BELFRY_HD std::int64_t end_taking(std::int64_t j) const {
    const std::int64_t end = (2 * j + 3) * size / (2 * n) + 2;
    return j == n - 1 || end > size ? size : end;
  }
};

// The sizes of images [N,H,W,C] before and after.
struct ResizedImages {
  ResizedAxis rows, columns;
  std::int64_t channels;
};

// Between rows first, then between columns, in this order everywhere.
template <class T>
BELFRY_HD T between(T a, T b, const PixelPair<T>& pair) {
  return pair.low_weight * a + pair.high_weight * b;
}

}  // namespace belfry
