// Plain arithmetic for reference kernels. Integers wrap around.
#pragma once
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

namespace belfry::kernels {

template <class T>
T wrapping_add(T a, T b) {
  if constexpr (std::integral<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

template <class T>
T wrapping_subtract(T a, T b) {
  if constexpr (std::integral<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
  } else {
    return a - b;
  }
}

// Element i of the canonical sum: a balanced tree, split at ceil(n / 2), left + right.
// The inputs point at T.
template <class T>
T plain_tree(std::span<const void* const> inputs, std::int64_t i) {
  if (inputs.size() == 1) return static_cast<const T*>(inputs[0])[i];
  const std::size_t middle = (inputs.size() + 1) / 2;
  return wrapping_add(plain_tree<T>(inputs.first(middle), i),
                      plain_tree<T>(inputs.subspan(middle), i));
}

}  // namespace belfry::kernels
