// The computation in kernels of AvgPool and its gradient.
#pragma once
#include "belfry/framework/graph/kernel.h"
#include "belfry/ops/convolution/window.h"

namespace belfry::kernels {

struct Pool {
  std::int64_t channels;
  WindowAxis vertical, horizontal;
  bool counts_padding;

  // The number that the sum over these parts of a window is divided by.
  BELFRY_HD std::int64_t counted(const WorkRange& rows, const WorkRange& columns) const {
    return counts_padding ? vertical.window * horizontal.window
                          : (rows.end - rows.begin) * (columns.end - columns.begin);
  }
  std::int64_t image_size() const { return vertical.in * horizontal.in * channels; }
  std::int64_t pooled_size() const { return vertical.out * horizontal.out * channels; }
};

// Calls visit(offset, pixels) for every pixel under the window of (row, column), with the number
// that their sum is divided by.
template <class Visit>
BELFRY_HD void for_each_pixel(const Pool& s, std::int64_t row, std::int64_t column,
                              const Visit& visit) {
  const WindowAxis &v = s.vertical, &h = s.horizontal;
  const WorkRange rows = v.inside(row), columns = h.inside(column);
  const std::int64_t pixels = s.counted(rows, columns);
  for (std::int64_t i = rows.begin; i < rows.end; ++i)
    for (std::int64_t j = columns.begin; j < columns.end; ++j) {
      const std::int64_t x_row = row * v.stride - v.before + i;
      visit((x_row * h.in + column * h.stride - h.before + j) * s.channels, pixels);
    }
}

inline Pool make_pool(const Shape& image, const PoolOptions& options) {
  const auto [window, stride, padding, count_include_pad] = options;
  return {image[3], WindowAxis(image[1], window.vertical, stride.vertical, padding.vertical()),
          WindowAxis(image[2], window.horizontal, stride.horizontal, padding.horizontal()),
          count_include_pad};
}
inline Pool forward_pool(const KernelPlan& plan) {
  return make_pool(plan.input(0).shape, plan.options<PoolOptions>());
}
inline Pool gradient_pool(const KernelPlan& plan) {
  return make_pool(plan.output().shape, pool_options(plan.options<PoolGradOptions>()));
}

}  // namespace belfry::kernels
