// The ops of this room, in one source as in ops/pointwise.cu.
#include <cstring>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/ops/kernels/bits.h"
#include "belfry/ops/shapes/axis_walk_impl.h"
#include "belfry/ops/shapes/resize.h"
#include "belfry/ops/shapes/resize_impl.h"
#include "belfry/ops/shapes/triangle_impl.h"

namespace belfry::cuda {
namespace {

// The axes of MapAxes, from the outermost in.
struct WalkedAxes {
  static constexpr int kMost = 8;

  WalkedAxes(const KernelPlan& plan, const std::vector<AxisMap>& maps, const Shape& x) {
    const std::vector<AxisWalk> walks = axis_walks(maps, x);
    require(walks.size() <= kMost, plan.node().describe(), ": GPUs rearrange at most ", kMost,
            " axes that are apart; reshape the tensor");
    for (const AxisWalk& walk : walks) axes[count++] = walk;
  }

  int count = 0;
  AxisWalk axes[kMost];
};

// One element of the result per thread.
template <class Bits>
struct TakeByMaps {
  using Shared = Nothing;
  WalkedAxes axes;
  const Bits* x;
  Bits* y;
  Bits constant;
  std::int64_t elements;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= elements) return;
      std::int64_t rest = i, from = 0, stride = 1;
      bool inside = true;
      for (int axis = axes.count; axis-- > 0;) {
        const AxisWalk& walk = axes.axes[axis];
        const std::int64_t next = rest / walk.size, source = walk.source(rest - next * walk.size);
        inside = inside && source >= 0;
        from += source * stride;
        stride *= walk.n;
        rest = next;
      }
      y[i] = inside ? x[from] : constant;
    });
  }
};

template <class Bits>
QueueRun take_by_maps(const KernelPlan& plan) {
  const auto& options = plan.options<MapAxesOptions>();
  const Tensor value = scalar_tensor(options.value, plan.dtype());
  Bits constant;
  std::memcpy(&constant, value.raw(), sizeof constant);
  return [axes = WalkedAxes(plan, options.maps, plan.input(0).shape), constant,
          elements = plan.output().shape.elements()](const KernelPointers& p, KernelQueue& queue) {
    launch(queue, TakeByMaps<Bits>{axes, p.input<Bits>(0), p.output<Bits>(), constant, elements},
           grid_for(elements));
  };
}

QueueRun map_axes_on_gpu(KernelPlan& plan) {
  return visit_bits(plan.dtype(), [&]<class Bits>(Bits) { return take_by_maps<Bits>(plan); });
}

// The sum of the copies of one element of x per thread, in their order.
template <class T>
struct SumByMaps {
  using Shared = Nothing;
  WalkedAxes axes;
  const T* dy;
  T* dx;
  std::int64_t elements;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i < elements) dx[i] = sum_of(i);
    });
  }

  BELFRY_HD T sum_of(std::int64_t i) const {
    AxisCopies copies[WalkedAxes::kMost];
    std::int64_t strides[WalkedAxes::kMost], at[WalkedAxes::kMost];
    std::int64_t stride = 1, from = 0;
    for (int axis = axes.count; axis-- > 0;) {
      const AxisWalk& walk = axes.axes[axis];
      const std::int64_t next = i / walk.n;
      copies[axis] = walk.copies(i - next * walk.n);
      if (copies[axis].count == 0) return T(0);
      strides[axis] = stride;
      at[axis] = 0;
      from += copies[axis].at(0) * stride;
      stride *= walk.size;
      i = next;
    }
    T sum = 0;
    for (;;) {
      sum += dy[from];
      int axis = axes.count - 1;
      for (; axis >= 0; --axis) {
        from -= copies[axis].at(at[axis]) * strides[axis];
        at[axis] = at[axis] + 1 < copies[axis].count ? at[axis] + 1 : 0;
        from += copies[axis].at(at[axis]) * strides[axis];
        if (at[axis] > 0) break;
      }
      if (axis < 0) return sum;
    }
  }
};

QueueRun map_axes_grad_on_gpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [axes = WalkedAxes(plan, plan.options<MapAxesGradOptions>().maps, plan.output().shape),
            elements = plan.output().shape.elements()](const KernelPointers& p,
                                                       KernelQueue& queue) {
      launch(queue, SumByMaps<T>{axes, p.input<T>(0), p.output<T>(), elements}, grid_for(elements));
    };
  });
}

template <class Bits>
struct KeepTriangle {
  using Shared = Nothing;
  TriangleRows rows;
  const Bits* x;
  Bits* y;
  std::int64_t elements;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= elements) return;
      const std::int64_t row = i / rows.n, column = i - row * rows.n;
      const WorkRange kept = rows.kept(row);
      y[i] = column >= kept.begin && column < kept.end ? x[i] : Bits(0);
    });
  }
};

template <class Bits>
QueueRun keep_triangle(const KernelPlan& plan) {
  const Shape& x = plan.output().shape;
  return [rows = TriangleRows(x, plan.options<TriangleOptions>()), elements = x.elements()](
             const KernelPointers& p, KernelQueue& queue) {
    launch(queue, KeepTriangle<Bits>{rows, p.input<Bits>(0), p.output<Bits>(), elements},
           grid_for(elements));
  };
}

QueueRun triangle_on_gpu(KernelPlan& plan) {
  return visit_bits(plan.dtype(), [&]<class Bits>(Bits) { return keep_triangle<Bits>(plan); });
}

template <class T>
struct ResizeBilinear {
  using Shared = Nothing;
  ResizedImages s;
  const T* x;
  T* y;
  std::int64_t elements;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= elements) return;
      const std::int64_t pixel = i / s.channels, line = pixel / s.columns.size;
      const PixelPair<T> column = s.columns.pair<T>(pixel - line * s.columns.size);
      const PixelPair<T> row = s.rows.pair<T>(line % s.rows.size);
      const T* const image =
          x + line / s.rows.size * s.rows.n * s.columns.n * s.channels + (i - pixel * s.channels);
      const T* const above = image + row.low * s.columns.n * s.channels;
      const T* const below = image + row.high * s.columns.n * s.channels;
      const std::int64_t left = column.low * s.channels, right = column.high * s.channels;
      y[i] = between(between(above[left], below[left], row),
                     between(above[right], below[right], row), column);
    });
  }
};

// The sum over all pixels that take a pixel, in the order of hosts.
template <class T>
struct ResizeBilinearGrad {
  using Shared = Nothing;
  ResizedImages s;
  const T* dy;
  T* dx;
  std::int64_t elements;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= elements) return;
      const std::int64_t pixel = i / s.channels, line = pixel / s.columns.n;
      const std::int64_t x = pixel - line * s.columns.n, y = line % s.rows.n;
      const T* const image = dy + line / s.rows.n * s.rows.size * s.columns.size * s.channels +
                             (i - pixel * s.channels);
      T sum = 0;
      for (std::int64_t r = s.rows.first_taking(y); r < s.rows.end_taking(y); ++r) {
        const PixelPair<T> row = s.rows.pair<T>(r);
        if (!row.has(y)) continue;
        for (std::int64_t c = s.columns.first_taking(x); c < s.columns.end_taking(x); ++c) {
          const PixelPair<T> column = s.columns.pair<T>(c);
          if (column.has(x))
            sum += row.weight(y) * column.weight(x) * image[(r * s.columns.size + c) * s.channels];
        }
      }
      dx[i] = sum;
    });
  }
};

template <template <class> class Kernel, bool back>
QueueRun resize_on_gpu(KernelPlan& plan) {
  const Shape &x = plan.input(0).shape, &y = plan.output().shape;
  const ResizedImages s = back ? ResizedImages{{y[1], x[1]}, {y[2], x[2]}, x[3]}
                               : ResizedImages{{x[1], y[1]}, {x[2], y[2]}, x[3]};
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [s, elements = y.elements()](const KernelPointers& p, KernelQueue& queue) {
      launch(queue, Kernel<T>{s, p.input<T>(0), p.output<T>(), elements}, grid_for(elements));
    };
  });
}

const GpuKernel kernels_of_shapes[] = {
    {kMapAxes, map_axes_on_gpu, kTakesHalf},
    {kMapAxesGrad, map_axes_grad_on_gpu},
    {kTriangle, triangle_on_gpu, kTakesHalf},
    {kResizeBilinear, resize_on_gpu<ResizeBilinear, false>},
    {kResizeBilinearGrad, resize_on_gpu<ResizeBilinearGrad, true>},
};

}  // namespace
}  // namespace belfry::cuda
