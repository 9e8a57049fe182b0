// The computation in kernels of AvgPool and its gradient.
#pragma once
#include "belfry/framework/graph/kernel.h"
#include "belfry/ops/convolution/window.h"

namespace belfry::kernels {

struct Pool {
  std::int64_t channels;
  WindowAxis vertical, horizontal;

  std::int64_t image_size() const { return vertical.in * horizontal.in * channels; }
  std::int64_t pooled_size() const { return vertical.out * horizontal.out * channels; }
};

// Calls visit(offset, pixels) for every pixel under the window of (row, column), with their number.
template <class Visit>
BELFRY_HD void for_each_pixel(const Pool& s, std::int64_t row, std::int64_t column,
                              const Visit& visit) {
  const WindowAxis &v = s.vertical, &h = s.horizontal;
  const WorkRange rows = v.inside(row), columns = h.inside(column);
  const std::int64_t pixels = (rows.end - rows.begin) * (columns.end - columns.begin);
  for (std::int64_t i = rows.begin; i < rows.end; ++i)
    for (std::int64_t j = columns.begin; j < columns.end; ++j) {
      const std::int64_t x_row = row * v.stride - v.before + i;
      visit((x_row * h.in + column * h.stride - h.before + j) * s.channels, pixels);
    }
}

inline Pool make_pool(const Shape& image, int window, int stride, Padding padding) {
  return {image[3], WindowAxis(image[1], window, stride, padding),
          WindowAxis(image[2], window, stride, padding)};
}
inline Pool forward_pool(const KernelPlan& plan) {
  const auto [window, stride, padding] = plan.options<PoolOptions>();
  return make_pool(plan.input(0).shape, window, stride, padding);
}
inline Pool gradient_pool(const KernelPlan& plan) {
  const auto& o = plan.options<PoolGradOptions>();
  return make_pool(plan.output().shape, o.window, o.stride, o.padding);
}

}  // namespace belfry::kernels
