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

// The canonical sum of term(begin), ..., term(end - 1), at least one: a balanced tree, split at
// ceil(n / 2), left + right.
template <class T, class Term>
T plain_tree(std::int64_t begin, std::int64_t end, const Term& term) {
  if (end - begin == 1) return static_cast<T>(term(begin));
  const std::int64_t middle = begin + (end - begin + 1) / 2;
  return wrapping_add(plain_tree<T>(begin, middle, term), plain_tree<T>(middle, end, term));
}
// The canonical sum of element i of all inputs, which point at T.
template <class T>
T plain_tree(std::span<const void* const> inputs, std::int64_t i) {
  return plain_tree<T>(0, std::ssize(inputs), [&](std::int64_t k) {
    return static_cast<const T*>(inputs[static_cast<std::size_t>(k)])[i];
  });
}

}  // namespace belfry::kernels
