// Windows seen from a pixel of the image.
#pragma once
#include "belfry/ops/convolution/window.h"

namespace belfry::kernels {

// The output positions whose window covers `pixel`. In the window of position o the pixel has
// offset pixel + axis.before - o * axis.stride.
BELFRY_HD WorkRange windows_over(const WindowAxis& axis, std::int64_t pixel) {
  const std::int64_t last = pixel + axis.before;  // a window's last start, counted from the padding
  const std::int64_t first = last - axis.window + 1;
  const std::int64_t begin = first <= 0 ? 0 : (first + axis.stride - 1) / axis.stride;
  const std::int64_t end = last / axis.stride + 1;
  return {begin, end < axis.out ? end : axis.out};
}

}  // namespace belfry::kernels
