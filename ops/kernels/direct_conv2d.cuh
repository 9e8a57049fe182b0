// Convolution and its gradients in plain loops on GPUs, for what cuDNN does not compute. They
// change no bit of a sum's order from one GPU to another: a thread, or a block, has the whole sum.
#pragma once
#include "belfry/framework/cuda/kernels/block.h"
#include "belfry/ops/kernels/conv2d.h"
#include "belfry/ops/kernels/windows_over.h"

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
    const WindowAxis &v = s.vertical, &h = s.horizontal;
    block.each([&](int thread) {
      const std::int64_t at = block.index * block.threads + thread;
      if (at >= s.images * v.out * h.out * s.out) return;
      const std::int64_t o = at % s.out, pixel = at / s.out;
      const std::int64_t column = pixel % h.out, row = pixel / h.out % v.out;
      const std::int64_t image = pixel / h.out / v.out;
      const WorkRange rows = v.inside(row), columns = h.inside(column);
      T sum = 0;
      for (std::int64_t i = rows.begin; i < rows.end; ++i)
        for (std::int64_t j = columns.begin; j < columns.end; ++j) {
          const std::int64_t x_row = image * v.in + row * v.stride - v.before + i;
          const T* in = x + (x_row * h.in + column * h.stride - h.before + j) * s.in;
          const T* w = filter + ((o * v.window + i) * h.window + j) * s.in;
          for (std::int64_t c = 0; c < s.in; ++c) sum += in[c] * w[c];
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
    const WindowAxis &v = s.vertical, &h = s.horizontal;
    block.each([&](int thread) {
      const std::int64_t at = block.index * block.threads + thread;
      if (at >= s.images * v.in * h.in * s.in) return;
      const std::int64_t c = at % s.in, pixel = at / s.in;
      const std::int64_t x_column = pixel % h.in, x_row = pixel / h.in % v.in;
      const std::int64_t image = pixel / h.in / v.in;
      const WorkRange rows = kernels::windows_over(v, x_row);
      const WorkRange columns = kernels::windows_over(h, x_column);
      T sum = 0;
      for (std::int64_t row = rows.begin; row < rows.end; ++row)
        for (std::int64_t column = columns.begin; column < columns.end; ++column) {
          const std::int64_t i = x_row + v.before - row * v.stride;
          const std::int64_t j = x_column + h.before - column * h.stride;
          const T* g = dy + ((image * v.out + row) * h.out + column) * s.out;
          for (std::int64_t o = 0; o < s.out; ++o)
            sum += g[o] * filter[((o * v.window + i) * h.window + j) * s.in + c];
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

  Grid grid() const { return {s.out * s.vertical.window * s.horizontal.window * s.in, kThreads}; }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    block.each([&](int thread) { shared.partial[thread] = sum(block.index, thread); });
    for (int half = kThreads / 2; half > 0; half /= 2)
      block.each([&](int thread) {
        if (thread < half) shared.partial[thread] += shared.partial[thread + half];
      });
    block.each([&](int thread) {
      if (thread == 0) out[block.index] = shared.partial[0];
    });
  }

 private:
  BELFRY_HD T sum(std::int64_t at, int thread) const {
    const WindowAxis &v = s.vertical, &h = s.horizontal;
    const std::int64_t c = at % s.in, j = at / s.in % h.window;
    const std::int64_t i = at / s.in / h.window % v.window;
    const std::int64_t o = at / s.in / h.window / v.window;
    T sum = 0;
    for (std::int64_t p = thread; p < s.images * v.out * h.out; p += kThreads) {
      const std::int64_t row = p / h.out % v.out * v.stride - v.before + i;
      const std::int64_t column = p % h.out * h.stride - h.before + j;
      if (row < 0 || row >= v.in || column < 0 || column >= h.in) continue;
      const std::int64_t pixel = (p / h.out / v.out * v.in + row) * h.in + column;
      sum += x[pixel * s.in + c] * dy[p * s.out + o];
    }
    return sum;
  }
};

}  // namespace belfry::cuda
