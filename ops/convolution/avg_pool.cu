// cuDNN computes average pooling with equal padding on both sides of an image that does not count.
// A padded copy of the image would not do, because its padding would count. Kernels here compute
// everything else, in the order of the host's kernels.
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/shape_ints.h"
#include "belfry/ops/convolution/avg_pool.h"
#include "belfry/ops/convolution/avg_pool_impl.h"
#include "belfry/ops/convolution/windows_over_impl.h"

namespace belfry::cuda {
namespace {

using kernels::Pool;

// An element of y per thread.
template <class T>
struct Mean {
  using Shared = Nothing;
  Pool s;
  std::int64_t count;
  const T* x;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    const WindowAxis &v = s.vertical, &h = s.horizontal;
    block.each([&](int thread) {
      const std::int64_t at = block.index * block.threads + thread;
      if (at >= count) return;
      const std::int64_t c = at % s.channels, pixel = at / s.channels;
      const std::int64_t column = pixel % h.out, row = pixel / h.out % v.out;
      const T* image = x + pixel / h.out / v.out * v.in * h.in * s.channels;
      T sum = 0, pixels = 1;
      kernels::for_each_pixel(s, row, column, [&](std::int64_t offset, std::int64_t number) {
        sum += image[offset + c];
        pixels = static_cast<T>(number);
      });
      y[at] = sum / pixels;
    });
  }
};

// An element of dx per thread.
template <class T>
struct MeanGrad {
  using Shared = Nothing;
  Pool s;
  std::int64_t count;
  const T* dy;
  T* dx;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    const WindowAxis &v = s.vertical, &h = s.horizontal;
    block.each([&](int thread) {
      const std::int64_t at = block.index * block.threads + thread;
      if (at >= count) return;
      const std::int64_t c = at % s.channels, pixel = at / s.channels;
      const std::int64_t image = pixel / h.in / v.in;
      const WorkRange rows = kernels::windows_over(v, pixel / h.in % v.in);
      const WorkRange columns = kernels::windows_over(h, pixel % h.in);
      T sum = 0;
      for (std::int64_t row = rows.begin; row < rows.end; ++row)
        for (std::int64_t column = columns.begin; column < columns.end; ++column) {
          const std::int64_t pixels = s.counted(v.inside(row), h.inside(column));
          sum += dy[((image * v.out + row) * h.out + column) * s.channels + c] /
                 static_cast<T>(pixels);
        }
      dx[at] = sum;
    });
  }
};

// The call of cuDNN; empty if cuDNN does not compute it.
std::optional<Pooling> for_library(const KernelPlan& plan, Algorithms& algorithms, bool gradient,
                                   const Pool& s) {
  const WindowAxis &v = s.vertical, &h = s.horizontal;
  const std::int64_t images = plan.output().shape[0];
  const auto x = shape_ints({images, v.in, h.in, s.channels});
  const auto y = shape_ints({images, v.out, h.out, s.channels});
  const auto window = shape_ints({v.window, h.window, v.stride, h.stride});
  const bool padded = v.before + v.after + h.before + h.after > 0;
  if (!x || !y || !window || !v.pads_evenly() || !h.pads_evenly()) return {};
  if (s.counts_padding && padded) return {};
  const Pooling pooling{.gradient = gradient,
                        .dtype = plan.dtype(),
                        .x = *x,
                        .y = *y,
                        .window = {(*window)[0], (*window)[1]},
                        .padding = {static_cast<int>(v.before), static_cast<int>(h.before)},
                        .stride = {(*window)[2], (*window)[3]}};
  return algorithms.pooling(pooling) ? std::optional(pooling) : std::nullopt;
}

template <template <class> class Own>
QueueRun prepare(KernelPlan& plan, Algorithms& algorithms, bool gradient, const Pool& s) {
  if (const auto pooling = for_library(plan, algorithms, gradient, s))
    return [pooling = *pooling](const KernelPointers& p, KernelQueue& queue) {
      queue.pool({.pooling = pooling, .in = p.input<void>(0), .out = p.output<void>()});
    };
  if (is_half(plan.dtype())) return {};
  const std::int64_t count = plan.output().shape.elements();
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [s, count](const KernelPointers& p, KernelQueue& queue) {
      launch(queue, Own<T>{s, count, p.input<T>(0), p.output<T>()}, grid_for(count));
    };
  });
}

QueueRun prepare_avg_pool(KernelPlan& plan, Algorithms& algorithms) {
  return prepare<Mean>(plan, algorithms, false, kernels::forward_pool(plan));
}
QueueRun prepare_avg_pool_grad(KernelPlan& plan, Algorithms& algorithms) {
  return prepare<MeanGrad>(plan, algorithms, true, kernels::gradient_pool(plan));
}

}  // namespace

const GpuKernel avg_pool(kAvgPool, prepare_avg_pool);
const GpuKernel avg_pool_grad(kAvgPoolGrad, prepare_avg_pool_grad);

}  // namespace belfry::cuda
