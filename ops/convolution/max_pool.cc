#include "belfry/ops/convolution/max_pool.h"

#include <algorithm>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/convolution/max_pool_impl.h"
#include "belfry/ops/convolution/stored_window_impl.h"
#include "belfry/ops/kernels/typed_kernels.h"

namespace belfry {
namespace {

using kernels::Candidate;
using kernels::larger;
using kernels::MaxPooling;
using WindowIndex = std::uint8_t;  // of a maximum in its window

// The places in a window are numbers of 8 bits.
constexpr int kMostPlaces = 256;

Shape max_pool_output(const ShapeContext& c) {
  const auto& options = c.options<PoolOptions>();
  const Shape out = pool_output(c);
  const auto [down, right] = options.window;
  c.require(std::int64_t{down} * right <= kMostPlaces, "windows of max pooling have at most ",
            kMostPlaces, " pixels, not ", down, " x ", right, "; reduce_max() takes whole images");
  c.require(!options.count_include_pad,
            "padding never counts in max pooling; count_include_pad is "
            "an option of avg_pool");
  return out;
}

OutputTypes max_pool_shape(const ShapeContext& c) {
  const Shape out = max_pool_output(c);
  return {out, {out, DType::kU8}};
}

OutputTypes max_pool_grad_shape(const ShapeContext& c) {
  c.require(c.input(0).compatible(c.input(1)) && c.dtype(1) == DType::kU8,
            "needs a gradient and the u8 places of the maxima, not ", c.type(0), " and ",
            c.type(1));
  return {pool_input(c)};
}

OutputTypes max_pool_grad_grad_shape(const ShapeContext& c) {
  const Shape out = max_pool_output(c);
  c.require(out.compatible(c.input(1)) && c.dtype(1) == DType::kU8,
            "needs images and the u8 places of the maxima, not ", c.type(0), " and ", c.type(1));
  return {out};
}

Output route_to_maxima(Output dy, Output places, const PoolOptions& options, const Shape& image) {
  return dy.graph()
      .add(kMaxPoolGrad, {dy, places}, {}, NodeOptions(pool_grad_options(options, image)))
      .output();
}

std::vector<Output> max_pool_gradient(const Node& node, std::span<const Output> grads) {
  return {route_to_maxima(grads[0], node.output(1), node.options<PoolOptions>(),
                          node.input(0).shape())};
}

std::vector<Output> max_pool_grad_gradient(const Node& node, std::span<const Output> grads) {
  const PoolOptions options = pool_options(node.options<PoolGradOptions>());
  return {node.graph()
              .add(kMaxPoolGradGrad, {grads[0], node.input(1)}, {}, NodeOptions(options))
              .output(),
          {}};
}

std::vector<Output> max_pool_grad_grad_gradient(const Node& node, std::span<const Output> grads) {
  return {
      route_to_maxima(grads[0], node.input(1), node.options<PoolOptions>(), node.input(0).shape()),
      {}};
}

// The pixels that one output pixel reads; `at` is the offset of the window's first pixel.
struct Taps {
  WorkRange rows, columns;
  std::int64_t at;

  BELFRY_HD Taps(const MaxPooling& s, std::int64_t row, std::int64_t column)
      : rows(s.vertical.inside(row)),
        columns(s.horizontal.inside(column)),
        at(((row * s.vertical.stride - s.vertical.before) * s.horizontal.in +
            column * s.horizontal.stride - s.horizontal.before) *
           s.channels) {}
  BELFRY_HD std::int64_t offset(const MaxPooling& s, std::int64_t i, std::int64_t j) const {
    return at + (i * s.horizontal.in + j) * s.channels;
  }
};

// Calls each(c) for all channels, kLanes at a time. Left to itself the compiler would take as many
// as a vector has bytes, because places are bytes, and fewer channels than that one by one.
template <class Each>
BELFRY_HD void for_channels(std::int64_t channels, const Each& each) {
  constexpr std::int64_t kLanes = 16;
  std::int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    BELFRY_INDEPENDENT
    for (std::int64_t lane = 0; lane < kLanes; ++lane) each(c + lane);
  }
  BELFRY_INDEPENDENT
  for (; c < channels; ++c) each(c);
}

// The maximum of the four corners of a window of 2 x 2.
template <class T>
struct MaxOfFour {
  std::int64_t channels;
  const T *top, *bottom;
  T* y;
  WindowIndex* place;
  BELFRY_HD void operator()(std::int64_t c) const {
    const Candidate<T> best = larger(larger(Candidate<T>{top[c], 0}, {top[channels + c], 1}),
                                     larger(Candidate<T>{bottom[c], 2}, {bottom[channels + c], 3}));
    y[c] = best.value;
    place[c] = static_cast<WindowIndex>(best.place);
  }
};

template <class T>
struct MaxWith {
  const T* x;
  WindowIndex at;
  T* y;
  WindowIndex* place;
  BELFRY_HD void operator()(std::int64_t c) const {
    const Candidate<T> best = larger(Candidate<T>{y[c], place[c]}, {x[c], at});
    y[c] = best.value;
    place[c] = static_cast<WindowIndex>(best.place);
  }
};

template <class T>
BELFRY_HD void start_with(std::int64_t channels, const T* x, WindowIndex at, T* y,
                          WindowIndex* place) {
  BELFRY_INDEPENDENT
  for (std::int64_t c = 0; c < channels; ++c) {
    y[c] = x[c];
    place[c] = at;
  }
}

template <class T>
BELFRY_KERNEL void max_pool_image(const MaxPooling& s, const T* x, T* y, WindowIndex* place) {
  const std::int64_t window = s.horizontal.window, channels = s.channels;
  const bool small = window == 2 && s.vertical.window == 2;
  for (std::int64_t row = 0; row < s.vertical.out; ++row)
    for (std::int64_t column = 0; column < s.horizontal.out; ++column) {
      const Taps taps(s, row, column);
      if (small && taps.rows.end - taps.rows.begin == 2 &&
          taps.columns.end - taps.columns.begin == 2) {
        for_channels(channels,
                     MaxOfFour<T>{channels, x + taps.at, x + taps.offset(s, 1, 0), y, place});
      } else {
        bool first = true;
        for (std::int64_t i = taps.rows.begin; i < taps.rows.end; ++i)
          for (std::int64_t j = taps.columns.begin; j < taps.columns.end; ++j) {
            const T* from = x + taps.offset(s, i, j);
            const WindowIndex at = static_cast<WindowIndex>(i * window + j);
            if (first)
              start_with(channels, from, at, y, place);
            else
              for_channels(channels, MaxWith<T>{from, at, y, place});
            first = false;
          }
      }
      y += channels;
      place += channels;
    }
}

// Gives every pixel of a window the gradient if it held the maximum, else 0. kAdds: windows
// overlap, so gradients are added.
template <bool kAdds, class T>
BELFRY_HD void route(std::int64_t channels, const T* dy, const WindowIndex* place, WindowIndex at,
                     T* dx) {
  BELFRY_INDEPENDENT
  for (std::int64_t c = 0; c < channels; ++c) {
    const T share = place[c] == at ? dy[c] : T(0);
    dx[c] = kAdds ? dx[c] + share : share;
  }
}

template <bool kAdds, class T>
BELFRY_KERNEL void max_pool_grad_image(const MaxPooling& s, const T* dy, const WindowIndex* place,
                                       T* dx) {
  for (std::int64_t row = 0; row < s.vertical.out; ++row)
    for (std::int64_t column = 0; column < s.horizontal.out; ++column) {
      const Taps taps(s, row, column);
      for (std::int64_t i = taps.rows.begin; i < taps.rows.end; ++i)
        for (std::int64_t j = taps.columns.begin; j < taps.columns.end; ++j)
          route<kAdds>(s.channels, dy, place, static_cast<WindowIndex>(i * s.horizontal.window + j),
                       dx + taps.offset(s, i, j));
      dy += s.channels;
      place += s.channels;
    }
}

KernelRun max_pool_cpu(KernelPlan& plan) {
  return typed_kernel(plan, [s = MaxPooling::forward(plan)]<class T>(T, const KernelPointers& p) {
    for (std::int64_t n = p.begin(); n < p.end(); ++n)
      max_pool_image(s, p.input<T>(0) + n * s.image_size(), p.output<T>() + n * s.pooled_size(),
                     p.output<WindowIndex>(1) + n * s.pooled_size());
  });
}

KernelRun max_pool_grad_cpu(KernelPlan& plan) {
  return typed_kernel(plan, [s = MaxPooling::gradient(plan)]<class T>(T, const KernelPointers& p) {
    for (std::int64_t n = p.begin(); n < p.end(); ++n) {
      const T* dy = p.input<T>(0) + n * s.pooled_size();
      const WindowIndex* place = p.input<WindowIndex>(1) + n * s.pooled_size();
      T* dx = p.output<T>() + n * s.image_size();
      if (s.tiles()) {
        max_pool_grad_image<false>(s, dy, place, dx);
      } else {
        std::fill_n(dx, s.image_size(), T(0));
        max_pool_grad_image<true>(s, dy, place, dx);
      }
    }
  });
}

template <class T>
void values_at_places(const MaxPooling& s, const T* x, const WindowIndex* place, T* y) {
  const std::int64_t window = s.horizontal.window;
  for (std::int64_t row = 0; row < s.vertical.out; ++row)
    for (std::int64_t column = 0; column < s.horizontal.out; ++column) {
      const Taps taps(s, row, column);
      for (std::int64_t c = 0; c < s.channels; ++c, ++place)
        *y++ = x[taps.offset(s, *place / window, *place % window) + c];
    }
}

KernelRun max_pool_grad_grad_cpu(KernelPlan& plan) {
  return typed_kernel(plan, [s = MaxPooling::forward(plan)]<class T>(T, const KernelPointers& p) {
    for (std::int64_t n = p.begin(); n < p.end(); ++n)
      values_at_places(s, p.input<T>(0) + n * s.image_size(),
                       p.input<WindowIndex>(1) + n * s.pooled_size(),
                       p.output<T>() + n * s.pooled_size());
  });
}

// Calls visit(pooled, pixel, place) for every output value and every pixel of its window.
template <class Visit>
void for_each_pair(const MaxPooling& s, const Visit& visit) {
  std::int64_t pooled = 0;
  for (std::int64_t row = 0; row < s.vertical.out; ++row)
    for (std::int64_t column = 0; column < s.horizontal.out; ++column)
      for (std::int64_t c = 0; c < s.channels; ++c, ++pooled) {
        const Taps taps(s, row, column);
        for (std::int64_t i = taps.rows.begin; i < taps.rows.end; ++i)
          for (std::int64_t j = taps.columns.begin; j < taps.columns.end; ++j)
            visit(pooled, taps.offset(s, i, j) + c,
                  static_cast<WindowIndex>(i * s.horizontal.window + j));
      }
}

KernelRun max_pool_reference(KernelPlan& plan) {
  return typed_kernel(plan, [s = MaxPooling::forward(plan)]<class T>(T, const KernelPointers& p) {
    for (std::int64_t n = p.begin(); n < p.end(); ++n) {
      const T* x = p.input<T>(0) + n * s.image_size();
      T* y = p.output<T>() + n * s.pooled_size();
      WindowIndex* places = p.output<WindowIndex>(1) + n * s.pooled_size();
      std::int64_t last = -1;
      for_each_pair(s, [&](std::int64_t pooled, std::int64_t pixel, WindowIndex place) {
        const bool first = pooled != last;
        last = pooled;
        if (!first && !(x[pixel] > y[pooled]) && x[pixel] == x[pixel]) return;
        y[pooled] = x[pixel];
        places[pooled] = place;
      });
    }
  });
}

KernelRun max_pool_grad_reference(KernelPlan& plan) {
  return typed_kernel(plan, [s = MaxPooling::gradient(plan)]<class T>(T, const KernelPointers& p) {
    for (std::int64_t n = p.begin(); n < p.end(); ++n) {
      const T* dy = p.input<T>(0) + n * s.pooled_size();
      const WindowIndex* places = p.input<WindowIndex>(1) + n * s.pooled_size();
      T* dx = p.output<T>() + n * s.image_size();
      std::fill_n(dx, s.image_size(), T(0));
      for_each_pair(s, [&](std::int64_t pooled, std::int64_t pixel, WindowIndex place) {
        if (places[pooled] == place) dx[pixel] += dy[pooled];
      });
    }
  });
}

KernelRun max_pool_grad_grad_reference(KernelPlan& plan) {
  return typed_kernel(plan, [s = MaxPooling::forward(plan)]<class T>(T, const KernelPointers& p) {
    for (std::int64_t n = p.begin(); n < p.end(); ++n) {
      const T* x = p.input<T>(0) + n * s.image_size();
      const WindowIndex* places = p.input<WindowIndex>(1) + n * s.pooled_size();
      T* y = p.output<T>() + n * s.pooled_size();
      for_each_pair(s, [&](std::int64_t pooled, std::int64_t pixel, WindowIndex place) {
        if (places[pooled] == place) y[pooled] = x[pixel];
      });
    }
  });
}

}  // namespace

const Op kMaxPool{.name = "MaxPool",
                  .inputs = 1,
                  .shape = max_pool_shape,
                  .gradient = max_pool_gradient,
                  .split = WorkSplit::kRows,
                  .shards = by_rows<1>,
                  .cpu = max_pool_cpu,
                  .reference = max_pool_reference};

const Op kMaxPoolGrad{.name = "MaxPoolGrad",
                      .inputs = 2,
                      .shape = max_pool_grad_shape,
                      .gradient = max_pool_grad_gradient,
                      .split = WorkSplit::kRows,
                      .shards = by_rows<3>,
                      .cpu = max_pool_grad_cpu,
                      .reference = max_pool_grad_reference};

const Op kMaxPoolGradGrad{.name = "MaxPoolGradGrad",
                          .inputs = 2,
                          .shape = max_pool_grad_grad_shape,
                          .gradient = max_pool_grad_grad_gradient,
                          .split = WorkSplit::kRows,
                          .shards = by_rows<3>,
                          .cpu = max_pool_grad_grad_cpu,
                          .reference = max_pool_grad_grad_reference};
const StoredOptions<PoolOptions> kStoredMaxPool(kMaxPool, kMaxPoolGradGrad);
const StoredOptions<PoolGradOptions> kStoredMaxPoolGrad(kMaxPoolGrad);

Output max_pool(Output x, PoolOptions options, At at) {
  return x.graph().add(kMaxPool, {x}, at, NodeOptions(options)).output();
}

}  // namespace belfry
