// Convolution and its gradients in plain loops on GPUs, for what cuDNN does not compute. Their bits
// are the same on every GPU: one thread, or one block, computes a whole sum.
#pragma once
#include "belfry/framework/cuda/kernels/fold.h"
#include "belfry/ops/convolution/conv2d_impl.h"
#include "belfry/ops/convolution/windows_over_impl.h"

namespace belfry::cuda {

// An element of y per thread.
template <class T>
struct DirectConv2d {
  using Shared = Nothing;
  using Element = T;
  kernels::ConvShape s;
  const T* x;
  const T* filter;
  T* out;

  Grid grid() const { return grid_for(s.images * s.vertical.out * s.horizontal.out * s.out); }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    const kernels::FilterAxis &v = s.vertical, &h = s.horizontal;
    const std::int64_t group_in = s.group_in(), group_out = s.group_out();
    block.each([&](int thread) {
      const std::int64_t at = block.index * block.threads + thread;
      if (at >= s.images * v.out * h.out * s.out) return;
      const std::int64_t o = at % s.out, pixel = at / s.out;
      const std::int64_t column = pixel % h.out, row = pixel / h.out % v.out;
      const std::int64_t image = pixel / h.out / v.out;
      const WorkRange rows = v.taps_inside(row), columns = h.taps_inside(column);
      const std::int64_t first = o / group_out * group_in;
      T sum = 0;
      for (std::int64_t i = rows.begin; i < rows.end; ++i)
        for (std::int64_t j = columns.begin; j < columns.end; ++j) {
          const std::int64_t x_row = image * v.in + v.pixel(row, i);
          const T* in = x + (x_row * h.in + h.pixel(column, j)) * s.in + first;
          const T* w = filter + ((o * v.taps + i) * h.taps + j) * group_in;
          for (std::int64_t c = 0; c < group_in; ++c) sum += in[c] * w[c];
        }
      out[at] = sum;
    });
  }
};

// An element of dx per thread.
template <class T>
struct DirectConv2dGradInput {
  using Shared = Nothing;
  using Element = T;
  kernels::ConvShape s;
  const T* dy;
  const T* filter;
  T* out;

  Grid grid() const { return grid_for(s.images * s.vertical.in * s.horizontal.in * s.in); }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    const kernels::FilterAxis &v = s.vertical, &h = s.horizontal;
    const std::int64_t group_in = s.group_in(), group_out = s.group_out();
    block.each([&](int thread) {
      const std::int64_t at = block.index * block.threads + thread;
      if (at >= s.images * v.in * h.in * s.in) return;
      const std::int64_t c = at % s.in, pixel = at / s.in;
      const std::int64_t x_column = pixel % h.in, x_row = pixel / h.in % v.in;
      const std::int64_t image = pixel / h.in / v.in;
      const WorkRange rows = kernels::windows_over(v, x_row);
      const WorkRange columns = kernels::windows_over(h, x_column);
      const std::int64_t first = c / group_in * group_out;
      T sum = 0;
      for (std::int64_t row = rows.begin; row < rows.end; ++row)
        for (std::int64_t column = columns.begin; column < columns.end; ++column) {
          const std::int64_t down = x_row + v.before - row * v.stride;
          const std::int64_t right = x_column + h.before - column * h.stride;
          if (down % v.dilation != 0 || right % h.dilation != 0) continue;
          const std::int64_t i = down / v.dilation, j = right / h.dilation;
          const T* g = dy + ((image * v.out + row) * h.out + column) * s.out;
          for (std::int64_t o = first; o < first + group_out; ++o)
            sum += g[o] * filter[((o * v.taps + i) * h.taps + j) * group_in + c % group_in];
        }
      out[at] = sum;
    });
  }
};

// An element of the filter per block, whose threads share the pixels of y.
template <class T>
struct DirectConv2dGradFilter {
  static constexpr int kThreads = 256;
  struct Shared {
    T partial[kThreads];
  };
  using Element = T;
  kernels::ConvShape s;
  const T* x;
  const T* dy;
  T* out;

  Grid grid() const { return {s.out * s.filter_size(), kThreads}; }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    block.each([&](int thread) { shared.partial[thread] = sum(block.index, thread); });
    by_halves(block, kThreads,
              [&](int to, int from) { shared.partial[to] += shared.partial[from]; });
    block.each([&](int thread) {
      if (thread == 0) out[block.index] = shared.partial[0];
    });
  }

 private:
  BELFRY_HD T sum(std::int64_t at, int thread) const {
    const kernels::FilterAxis &v = s.vertical, &h = s.horizontal;
    const std::int64_t group_in = s.group_in(), tap = at / group_in;
    const std::int64_t i = tap / h.taps % v.taps, j = tap % h.taps;
    const std::int64_t o = tap / h.taps / v.taps;
    const std::int64_t c = o / s.group_out() * group_in + at % group_in;
    T sum = 0;
    for (std::int64_t p = thread; p < s.images * v.out * h.out; p += kThreads) {
      const std::int64_t row = v.pixel(p / h.out % v.out, i);
      const std::int64_t column = h.pixel(p % h.out, j);
      if (row < 0 || row >= v.in || column < 0 || column >= h.in) continue;
      const std::int64_t pixel = (p / h.out / v.out * v.in + row) * h.in + column;
      sum += x[pixel * s.in + c] * dy[p * s.out + o];
    }
    return sum;
  }
};

}  // namespace belfry::cuda
