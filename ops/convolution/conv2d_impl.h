// Kernels of Conv2d and its gradients.
#pragma once
#include <algorithm>

#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/graph/packed_form.h"
#include "belfry/ops/convolution/window.h"

namespace belfry::kernels {

// The taps of a filter along one axis. The window reaches from the first to the last.
struct FilterAxis : WindowAxis {
  std::int64_t taps = 0, dilation = 1;  // pixels from one tap to the next

  FilterAxis(std::int64_t in_size, std::int64_t filter_taps, std::int64_t filter_stride,
             AxisPadding padding, std::int64_t filter_dilation)
      : WindowAxis(in_size, dilated_extent(filter_taps, filter_dilation), filter_stride, padding),
        taps(filter_taps),
        dilation(filter_dilation) {}

  // The taps inside the image at output position o.
  BELFRY_HD WorkRange taps_inside(std::int64_t o) const {
    const WorkRange pixels = inside(o);
    return {(pixels.begin + dilation - 1) / dilation, (pixels.end + dilation - 1) / dilation};
  }
  // The pixel of the image under a tap, which is inside.
  BELFRY_HD std::int64_t pixel(std::int64_t o, std::int64_t tap) const {
    return o * stride - before + tap * dilation;
  }
};

// A convolution of `images` images. Pointers in the functions below are to the first of them.
struct ConvShape {
  std::int64_t images, in, out, groups;  // in, out: channels
  FilterAxis vertical, horizontal;

  // Channels of a group.
  BELFRY_HD std::int64_t group_in() const { return in / groups; }
  BELFRY_HD std::int64_t group_out() const { return out / groups; }
  // Elements of the filter of one output channel.
  BELFRY_HD std::int64_t filter_size() const {
    return vertical.taps * horizontal.taps * group_in();
  }
};

// Plain loops: calls multiply(x, w, y) with the offsets of an element of x, one of the filter, and
// the element of y to which their product adds.
template <class Multiply>
void for_each_product(const ConvShape& s, const Multiply& multiply) {
  const FilterAxis &v = s.vertical, &h = s.horizontal;
  const std::int64_t in = s.group_in(), out = s.group_out(), filter_size = s.filter_size();
  const auto tap = [&](std::int64_t x, std::int64_t w, std::int64_t y) {
    for (std::int64_t group = 0; group < s.groups; ++group, x += in)
      for (std::int64_t o = 0; o < out; ++o, ++y, w += filter_size)
        for (std::int64_t c = 0; c < in; ++c) multiply(x + c, w + c, y);
  };
  std::int64_t y = 0;
  for (std::int64_t image = 0; image < s.images; ++image)
    for (std::int64_t row = 0; row < v.out; ++row)
      for (std::int64_t column = 0; column < h.out; ++column, y += s.out) {
        const WorkRange rows = v.taps_inside(row), columns = h.taps_inside(column);
        for (std::int64_t i = rows.begin; i < rows.end; ++i)
          for (std::int64_t j = columns.begin; j < columns.end; ++j) {
            const std::int64_t x_row = image * v.in + v.pixel(row, i);
            tap((x_row * h.in + h.pixel(column, j)) * s.in, (i * h.taps + j) * in, y);
          }
      }
}

template <class T>
void conv2d_plain(const ConvShape& s, const T* x, const T* filter, T* y) {
  std::fill_n(y, s.images * s.vertical.out * s.horizontal.out * s.out, T(0));
  for_each_product(s, [&](std::int64_t at_x, std::int64_t at_w, std::int64_t at_y) {
    y[at_y] += x[at_x] * filter[at_w];
  });
}

template <class T>
void conv2d_grad_input_plain(const ConvShape& s, const T* dy, const T* filter, T* dx) {
  std::fill_n(dx, s.images * s.vertical.in * s.horizontal.in * s.in, T(0));
  for_each_product(s, [&](std::int64_t at_x, std::int64_t at_w, std::int64_t at_y) {
    dx[at_x] += dy[at_y] * filter[at_w];
  });
}

template <class T>
void conv2d_grad_filter_plain(const ConvShape& s, const T* x, const T* dy, T* filter) {
  std::fill_n(filter, s.out * s.filter_size(), T(0));
  for_each_product(s, [&](std::int64_t at_x, std::int64_t at_w, std::int64_t at_y) {
    filter[at_w] += dy[at_y] * x[at_x];
  });
}

#if BELFRY_ONEDNN
// The same in f32 by oneDNN. The functions prepare a primitive, request workspace from the plan,
// and return the run. Images are NHWC on both sides, for which oneDNN runs at full speed; if it
// chose the layout of one side only, it would run its reference code. Winograd's algorithm has
// layouts of its own, to and from which a run copies images. It also copies the filter into the
// layout that oneDNN prefers, unless it has been packed like that.
using ConvRun =
    std::function<void(const float* first, const float* second, float* out, std::byte* workspace)>;
ConvRun onednn_conv2d(KernelPlan& plan, const ConvShape& shape);
ConvRun onednn_conv2d_grad_input(KernelPlan& plan, const ConvShape& shape);
ConvRun onednn_conv2d_grad_filter(KernelPlan& plan, const ConvShape& shape);
// The layout that oneDNN prefers for a filter, for kernels that read one.
std::shared_ptr<const PackedForm> onednn_conv2d_form(const KernelPlan& plan,
                                                     const ConvShape& shape);
std::shared_ptr<const PackedForm> onednn_conv2d_grad_input_form(const KernelPlan& plan,
                                                                const ConvShape& shape);
#endif

}  // namespace belfry::kernels
