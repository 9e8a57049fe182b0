// Kernels of Conv2d and its gradients.
#pragma once
#include <algorithm>

#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/graph/packed_form.h"
#include "belfry/ops/kernels/window.h"

namespace belfry::kernels {

// A convolution of `images` images. Pointers in the functions below are to the first of them.
struct ConvShape {
  std::int64_t images, in, out;  // channels
  WindowAxis vertical, horizontal;
};

// Plain loops: tap(x, w, y) for every pixel of y and every pixel of the filter that meets the
// image, with offsets of the vectors over channels: x [in], y [out] and w, for the first output
// channel.
template <class Tap>
void for_each_tap(const ConvShape& s, const Tap& tap) {
  const WindowAxis &v = s.vertical, &h = s.horizontal;
  std::int64_t y = 0;
  for (std::int64_t image = 0; image < s.images; ++image)
    for (std::int64_t row = 0; row < v.out; ++row)
      for (std::int64_t column = 0; column < h.out; ++column, y += s.out) {
        const WorkRange rows = v.inside(row), columns = h.inside(column);
        for (std::int64_t i = rows.begin; i < rows.end; ++i)
          for (std::int64_t j = columns.begin; j < columns.end; ++j) {
            const std::int64_t x_row = image * v.in + row * v.stride - v.before + i;
            const std::int64_t x = (x_row * h.in + column * h.stride - h.before + j) * s.in;
            tap(x, (i * h.window + j) * s.in, y);
          }
      }
}

// Distance between the filters of two output channels.
inline std::int64_t filter_size(const ConvShape& s) {
  return s.vertical.window * s.horizontal.window * s.in;
}

template <class T>
void conv2d_plain(const ConvShape& s, const T* x, const T* filter, T* y) {
  std::fill_n(y, s.images * s.vertical.out * s.horizontal.out * s.out, T(0));
  for_each_tap(s, [&](std::int64_t at_x, std::int64_t at_w, std::int64_t at_y) {
    for (std::int64_t o = 0; o < s.out; ++o)
      for (std::int64_t c = 0; c < s.in; ++c)
        y[at_y + o] += x[at_x + c] * filter[o * filter_size(s) + at_w + c];
  });
}

template <class T>
void conv2d_grad_input_plain(const ConvShape& s, const T* dy, const T* filter, T* dx) {
  std::fill_n(dx, s.images * s.vertical.in * s.horizontal.in * s.in, T(0));
  for_each_tap(s, [&](std::int64_t at_x, std::int64_t at_w, std::int64_t at_y) {
    for (std::int64_t o = 0; o < s.out; ++o)
      for (std::int64_t c = 0; c < s.in; ++c)
        dx[at_x + c] += dy[at_y + o] * filter[o * filter_size(s) + at_w + c];
  });
}

template <class T>
void conv2d_grad_filter_plain(const ConvShape& s, const T* x, const T* dy, T* filter) {
  std::fill_n(filter, s.out * filter_size(s), T(0));
  for_each_tap(s, [&](std::int64_t at_x, std::int64_t at_w, std::int64_t at_y) {
    for (std::int64_t o = 0; o < s.out; ++o)
      for (std::int64_t c = 0; c < s.in; ++c)
        filter[o * filter_size(s) + at_w + c] += dy[at_y + o] * x[at_x + c];
  });
}

#if BELFRY_ONEDNN
// The same in f32 by oneDNN. The functions prepare a primitive, ask the plan for workspace, and
// return what runs, given the pointers of above. Images are NHWC on both sides, which oneDNN serves
// at its full speed, whereas a layout of its own choice on one side alone falls to its reference
// code; the filter is copied into the layout that it prefers, unless it has been packed like that.
using ConvRun =
    std::function<void(const float* first, const float* second, float* out, std::byte* workspace)>;
ConvRun onednn_conv2d(KernelPlan& plan, const ConvShape& shape);
ConvRun onednn_conv2d_grad_input(KernelPlan& plan, const ConvShape& shape);
ConvRun onednn_conv2d_grad_filter(KernelPlan& plan, const ConvShape& shape);
// Of what reads a filter: that layout.
std::shared_ptr<const PackedForm> onednn_conv2d_form(const KernelPlan& plan,
                                                     const ConvShape& shape);
std::shared_ptr<const PackedForm> onednn_conv2d_grad_input_form(const KernelPlan& plan,
                                                                const ConvShape& shape);
#endif

}  // namespace belfry::kernels
