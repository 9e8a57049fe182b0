#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/pack.h"
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/convolution/max_pool_impl.h"
#include "belfry/ops/convolution/windows_over_impl.h"

namespace belfry::cuda {
namespace {

using kernels::Candidate;
using kernels::MaxPooling;
using WindowIndex = std::uint8_t;  // of a maximum in its window

struct Pixel {
  std::int64_t image, row, column, channel;
};

// Item i of images of height x width pixels of `lanes` each. Divisions of 32 bits are several times
// as fast.
template <class I>
BELFRY_HD Pixel pixel_of(I i, std::int64_t height, std::int64_t width, std::int64_t lanes) {
  const I pixel = i / static_cast<I>(lanes), row = pixel / static_cast<I>(width);
  const I image = row / static_cast<I>(height);
  return {static_cast<std::int64_t>(image), static_cast<std::int64_t>(row) - image * height,
          static_cast<std::int64_t>(pixel) - row * width,
          static_cast<std::int64_t>(i) - pixel * lanes};
}
BELFRY_HD Pixel pixel_at(std::int64_t i, std::int64_t height, std::int64_t width,
                         std::int64_t lanes) {
  return i <= 0x7fffffff ? pixel_of(static_cast<std::uint32_t>(i), height, width, lanes)
                         : pixel_of(i, height, width, lanes);
}

// W values of y per thread. F16 and BF16 are compared in f32.
template <class T, int W>
struct MaxPool {
  using Shared = Nothing;
  using S = Stored<T>;
  MaxPooling s;
  std::int64_t count;  // of y's elements
  const T* x;
  T* y;
  WindowIndex* place;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    const WindowAxis &v = s.vertical, &h = s.horizontal;
    block.each([&](int thread) {
      const std::int64_t item = block.index * block.threads + thread;
      if (item * W >= count) return;
      const Pixel at = pixel_at(item, v.out, h.out, s.channels / W);
      const WorkRange rows = v.inside(at.row), columns = h.inside(at.column);
      const std::int64_t top = at.image * v.in + at.row * v.stride - v.before + rows.begin;
      const std::int64_t left = at.column * h.stride - h.before + columns.begin;
      const T* row = x + (top * h.in + left) * s.channels + at.channel * W;
      const auto down = static_cast<int>(rows.end), right = static_cast<int>(columns.end),
                 window = static_cast<int>(h.window);
      Candidate<typename S::Type> best[W] = {};
      bool first = true;
      for (auto i = static_cast<int>(rows.begin); i < down; ++i, row += h.in * s.channels) {
        const T* from = row;
        for (auto j = static_cast<int>(columns.begin); j < right; ++j, from += s.channels) {
          const auto in = Lanes<T, W>::load(from);
          for (int k = 0; k < W; ++k) {
            const Candidate<typename S::Type> next{in.wide(k), i * window + j};
            best[k] = first ? next : kernels::larger(best[k], next);
          }
          first = false;
        }
      }
      Lanes<T, W> values;
      Lanes<WindowIndex, W> places;
      for (int k = 0; k < W; ++k) {
        values.at[k] = S::narrow(best[k].value);
        places.at[k] = static_cast<WindowIndex>(best[k].place);
      }
      values.store(y + item * W);
      places.store(place + item * W);
    });
  }
};

// W values of dx per thread: sums over the windows that cover their pixel, in order.
template <class T, int W>
struct MaxPoolGrad {
  using Shared = Nothing;
  using S = Stored<T>;
  MaxPooling s;
  std::int64_t count;  // of dx's elements
  const T* dy;
  const WindowIndex* place;
  T* dx;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    const WindowAxis &v = s.vertical, &h = s.horizontal;
    block.each([&](int thread) {
      const std::int64_t item = block.index * block.threads + thread;
      if (item * W >= count) return;
      const Pixel at = pixel_at(item, v.in, h.in, s.channels / W);
      const WorkRange rows = kernels::windows_over(v, at.row);
      const WorkRange columns = kernels::windows_over(h, at.column);
      const auto window = static_cast<int>(h.window), down = static_cast<int>(v.stride),
                 right = static_cast<int>(h.stride);
      // The pixel's place in the first window.
      auto i = static_cast<int>(at.row + v.before - rows.begin * v.stride);
      const auto first = static_cast<int>(at.column + h.before - columns.begin * h.stride);
      std::int64_t line =
          ((at.image * v.out + rows.begin) * h.out + columns.begin) * s.channels + at.channel * W;
      typename S::Type sum[W] = {};
      for (std::int64_t row = rows.begin; row < rows.end;
           ++row, i -= down, line += h.out * s.channels) {
        std::int64_t from = line;
        int j = first;
        for (std::int64_t column = columns.begin; column < columns.end;
             ++column, j -= right, from += s.channels) {
          const auto gradient = Lanes<T, W>::load(dy + from);
          const auto places = Lanes<WindowIndex, W>::load(place + from);
          for (int k = 0; k < W; ++k)
            sum[k] += places.at[k] == i * window + j ? gradient.wide(k) : 0;
        }
      }
      Lanes<T, W> rounded;
      for (int k = 0; k < W; ++k) rounded.at[k] = S::narrow(sum[k]);
      rounded.store(dx + item * W);
    });
  }
};

// A value of y per thread.
template <class T>
struct ValuesAtPlaces {
  using Shared = Nothing;
  MaxPooling s;
  std::int64_t count;  // of y's elements
  const T* x;
  const WindowIndex* place;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    const WindowAxis &v = s.vertical, &h = s.horizontal;
    block.each([&](int thread) {
      const std::int64_t item = block.index * block.threads + thread;
      if (item >= count) return;
      const Pixel at = pixel_at(item, v.out, h.out, s.channels);
      const std::int64_t row = at.row * v.stride - v.before + place[item] / h.window;
      const std::int64_t column = at.column * h.stride - h.before + place[item] % h.window;
      y[item] = x[((at.image * v.in + row) * h.in + column) * s.channels + at.channel];
    });
  }
};

template <int W, class T>
void pool(KernelQueue& queue, const MaxPooling& s, std::int64_t count, const KernelPointers& p) {
  launch(queue, MaxPool<T, W>{s, count, p.input<T>(0), p.output<T>(), p.output<WindowIndex>(1)},
         grid_for(count / W));
}
template <int W, class T>
void pool_grad(KernelQueue& queue, const MaxPooling& s, std::int64_t count,
               const KernelPointers& p) {
  launch(queue, MaxPoolGrad<T, W>{s, count, p.input<T>(0), p.input<WindowIndex>(1), p.output<T>()},
         grid_for(count / W));
}

QueueRun max_pool(KernelPlan& plan) {
  return visit_stored(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [s = MaxPooling::forward(plan), count = plan.output().shape.elements()](
               const KernelPointers& p, KernelQueue& queue) {
      visit_lanes<T>(
          s.channels, {p.input<T>(0), p.output<T>(), p.output<WindowIndex>(1)},
          [&]<int W>(std::integral_constant<int, W>) { pool<W, T>(queue, s, count, p); });
    };
  });
}

QueueRun max_pool_grad(KernelPlan& plan) {
  return visit_stored(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [s = MaxPooling::gradient(plan), count = plan.output().shape.elements()](
               const KernelPointers& p, KernelQueue& queue) {
      visit_lanes<T>(
          s.channels, {p.input<T>(0), p.output<T>(), p.input<WindowIndex>(1)},
          [&]<int W>(std::integral_constant<int, W>) { pool_grad<W, T>(queue, s, count, p); });
    };
  });
}

QueueRun max_pool_grad_grad(KernelPlan& plan) {
  return visit_stored(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [s = MaxPooling::forward(plan), count = plan.output().shape.elements()](
               const KernelPointers& p, KernelQueue& queue) {
      launch(queue,
             ValuesAtPlaces<T>{s, count, p.input<T>(0), p.input<WindowIndex>(1), p.output<T>()},
             grid_for(count));
    };
  });
}

const GpuKernel kernels_of_ops[] = {{kMaxPool, max_pool, kTakesHalf},
                                    {kMaxPoolGrad, max_pool_grad, kTakesHalf},
                                    {kMaxPoolGradGrad, max_pool_grad_grad, kTakesHalf}};

}  // namespace
}  // namespace belfry::cuda
