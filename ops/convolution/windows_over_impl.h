// Windows seen from a pixel of the image.
#pragma once
#include "belfry/ops/convolution/window.h"

namespace belfry::kernels {

// a / b for a >= 0. GPUs divide 32 bits several times as fast.
BELFRY_HD std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (a > 0x7fffffff || b > 0x7fffffff) return a / b;
  return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
}

// The output positions whose window covers `pixel`. In the window of position o the pixel has
// offset pixel + axis.before - o * axis.stride.
BELFRY_HD WorkRange windows_over(const WindowAxis& axis, std::int64_t pixel) {
  const std::int64_t last = pixel + axis.before;  // a window's last start, counted from the padding
  const std::int64_t first = last - axis.window + 1;
  const std::int64_t begin = first <= 0 ? 0 : quotient(first + axis.stride - 1, axis.stride);
  const std::int64_t end = quotient(last, axis.stride) + 1;
  return {begin, end < axis.out ? end : axis.out};
}

}  // namespace belfry::kernels
