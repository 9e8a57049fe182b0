// Shapes for libraries that count in int.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>

namespace belfry::cuda {

// The sizes as ints; empty if one is 0 or there are more than 2^31 - 1 elements.
inline std::optional<std::array<int, 4>> shape_ints(std::initializer_list<std::int64_t> sizes) {
  std::array<int, 4> ints{};
  std::int64_t elements = 1;
  std::size_t i = 0;
  for (const std::int64_t size : sizes) {
    if (size < 1 || size > std::numeric_limits<int>::max() / elements) return {};
    elements *= size;
    ints[i++] = static_cast<int>(size);
  }
  return ints;
}

}  // namespace belfry::cuda
