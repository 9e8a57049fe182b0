// How files hold the options of windows (framework/graph/stored_options.h).
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/convolution/padding.h"

namespace belfry {

inline int stored_pixels(std::int64_t number) {
  const int pixels = static_cast<int>(number);
  detail::require(pixels == number, number, " is out of range");
  return pixels;
}

inline std::vector<std::int64_t> numbers_of(const PerAxis& value) {
  return {value.vertical, value.horizontal};
}
inline void set_numbers(PerAxis& value, const std::vector<std::int64_t>& numbers) {
  detail::require(numbers.size() == 2, "two axes have ", numbers.size(), " numbers");
  value = {stored_pixels(numbers[0]), stored_pixels(numbers[1])};
}

// None for Padding::kSame.
inline std::vector<std::int64_t> numbers_of(const Padding& value) {
  const AxisPadding down = value.vertical(), right = value.horizontal();
  if (down.same) return {};
  return {down.before, down.after, right.before, right.after};
}
inline void set_numbers(Padding& value, const std::vector<std::int64_t>& numbers) {
  detail::require(numbers.empty() || numbers.size() == 4, "a padding has ", numbers.size(),
                  " numbers");
  value = numbers.empty() ? Padding::kSame
                          : Padding(stored_pixels(numbers[0]), stored_pixels(numbers[1]),
                                    stored_pixels(numbers[2]), stored_pixels(numbers[3]));
}

}  // namespace belfry
