// What the kernels of MapAxes know about one axis.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/shapes/map_axes.h"

namespace belfry {

// The indices of a result that show one index of x, in ascending order.
struct AxisCopies {
  std::int64_t count = 0, first = 0, step = 1;
  std::int64_t second = 0, third = 0;  // of mirrors
  bool mirrored = false;

  BELFRY_HD std::int64_t at(std::int64_t k) const {
    if (!mirrored) return first + k * step;
    return k == 0 ? first : k == 1 ? second : third;
  }
  BELFRY_HD void add_mirrored(std::int64_t i, std::int64_t size) {
    if (i < 0 || i >= size) return;
    (count == 0 ? first : count == 1 ? second : third) = i;
    ++count;
  }
};

// An AxisMap for a known size of x.
struct AxisWalk {
  using Kind = AxisMap::Kind;
  Kind kind = Kind::kStrided;
  std::int64_t n = 1, size = 1;  // of x, and of the result
  std::int64_t first = 0, step = 1;

  bool is_identity() const {
    return kind == Kind::kStrided && first == 0 && step == 1 && n == size;
  }

  // The index of x that index i of the result shows; -1 for a constant.
  BELFRY_HD std::int64_t source(std::int64_t i) const {
    const std::int64_t j = i - first;
    switch (kind) {
      case Kind::kStrided: return first + i * step;
      case Kind::kConstants: return j >= 0 && j < n ? j : -1;
      case Kind::kEdge: return j < 0 ? 0 : j < n ? j : n - 1;
      case Kind::kReflect: return j < 0 ? -j : j < n ? j : 2 * (n - 1) - j;
      case Kind::kWrap:
      case Kind::kTimes: return (j + n) % n;  // 0 <= first < n
      case Kind::kEach: return i / step;
      case Kind::kNearest: return i * n / size;
      default: return (2 * i + 1) * n / (2 * size);
    }
  }

  BELFRY_HD AxisCopies copies(std::int64_t j) const {
    switch (kind) {
      case Kind::kStrided: {
        const std::int64_t i = (j - first) / step;
        return {.count = i >= 0 && i < size && first + i * step == j, .first = i};
      }
      case Kind::kConstants: return {.count = 1, .first = j + first};
      case Kind::kEdge: return range(j == 0 ? 0 : j + first, j == n - 1 ? size : j + first + 1);
      case Kind::kReflect: {
        AxisCopies copies{.mirrored = true};
        if (j > 0) copies.add_mirrored(first - j, size);
        copies.add_mirrored(first + j, size);
        if (j < n - 1) copies.add_mirrored(first + 2 * (n - 1) - j, size);
        return copies;
      }
      case Kind::kWrap:
      case Kind::kTimes: {
        const std::int64_t least = (j + first) % n;
        return {.count = least < size ? (size - least + n - 1) / n : 0, .first = least, .step = n};
      }
      case Kind::kEach: return range(j * step, (j + 1) * step);
      case Kind::kNearest: return range(up(j * size, n), up((j + 1) * size, n));
      default: return range(up(2 * j * size - n, 2 * n), up(2 * (j + 1) * size - n, 2 * n));
    }
  }

 private:
  BELFRY_HD static AxisCopies range(std::int64_t begin, std::int64_t end) {
    return {.count = end - begin, .first = begin};
  }
  // a / b rounded up, at least 0.
  BELFRY_HD static std::int64_t up(std::int64_t a, std::int64_t b) {
    return a <= 0 ? 0 : (a + b - 1) / b;
  }
};

// The size of the result; unknown if it depends on n, and n is unknown.
std::int64_t mapped_size(const AxisMap& map, std::int64_t n);

// Axes from the outermost in; neighbours that are shown as they are count as one, except axis 0.
std::vector<AxisWalk> axis_walks(const std::vector<AxisMap>& maps, const Shape& x);

}  // namespace belfry
