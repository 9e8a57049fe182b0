#include "belfry/ops/shapes/resize.h"

#include <algorithm>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/shapes/map_axes.h"
#include "belfry/ops/shapes/resize_impl.h"

namespace belfry {
namespace {

// Images of x with the size of the options: those of the result, or for the gradient those of x.
OutputTypes resize_bilinear_shape(const ShapeContext& c) {
  c.require_rank(0, 4);
  c.require_floating(0);
  Shape out = c.input(0);
  c.require(out[1] != kUnknownSize && out[2] != kUnknownSize, "height and width of ", out,
            " must be known");
  const auto [height, width] = c.options<ImageSize>();
  c.require(height > 0 && width > 0 && out[1] > 0 && out[2] > 0, "cannot resize ", out, " to ",
            height, " x ", width, " pixels");
  out[1] = height;
  out[2] = width;
  return {out};
}

// The same op the other way: `op` with the size of the images of input 0.
template <const Op& op>
std::vector<Output> resize_bilinear_gradient(const Node& node, std::span<const Output> grads) {
  const Shape& x = node.input(0).shape();
  return {node.graph().add(op, grads, {}, NodeOptions(ImageSize{x[1], x[2]})).output()};
}

ResizedImages resized_images(const Shape& x, const Shape& y) {
  return {{x[1], y[1]}, {x[2], y[2]}, x[3]};
}

template <class T>
std::vector<PixelPair<T>> pixel_pairs(const ResizedAxis& axis) {
  std::vector<PixelPair<T>> pairs;
  for (std::int64_t i = 0; i < axis.size; ++i) pairs.push_back(axis.pair<T>(i));
  return pairs;
}

template <class T>
BELFRY_KERNEL void mix_rows(const T* a, const T* b, PixelPair<T> pair, std::int64_t count, T* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = pair.low_weight * a[i] + pair.high_weight * b[i];
}

// One row of the result from one row of x.
template <class T>
BELFRY_KERNEL void mix_columns(const T* x, const PixelPair<T>* pairs, std::int64_t size,
                               std::int64_t channels, T* y) {
  for (std::int64_t i = 0; i < size; ++i) {
    const T *const a = x + pairs[i].low * channels, *const b = x + pairs[i].high * channels;
    const T p = pairs[i].low_weight, q = pairs[i].high_weight;
    BELFRY_INDEPENDENT
    for (std::int64_t c = 0; c < channels; ++c) y[i * channels + c] = p * a[c] + q * b[c];
  }
}

// One row of the result from two rows of x that are too long for a buffer.
template <class T>
BELFRY_KERNEL void mix_both(const T* a, const T* b, PixelPair<T> rows, const PixelPair<T>* pairs,
                            std::int64_t size, std::int64_t channels, T* y) {
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t low = pairs[i].low * channels, high = pairs[i].high * channels;
    const T p = pairs[i].low_weight, q = pairs[i].high_weight;
    BELFRY_INDEPENDENT
    for (std::int64_t c = 0; c < channels; ++c)
      y[i * channels + c] = p * (rows.low_weight * a[low + c] + rows.high_weight * b[low + c]) +
                            q * (rows.low_weight * a[high + c] + rows.high_weight * b[high + c]);
  }
}

KernelRun resize_bilinear_cpu(KernelPlan& plan) {
  const ResizedImages s = resized_images(plan.input(0).shape, plan.output().shape);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [s, rows = pixel_pairs<T>(s.rows),
            columns = pixel_pairs<T>(s.columns)](const KernelPointers& p) {
      constexpr std::int64_t kBuffer = 4096;
      T buffer[kBuffer];
      const std::int64_t from = s.columns.n * s.channels, to = s.columns.size * s.channels;
      for (std::int64_t row = p.begin() * s.rows.size; row < p.end() * s.rows.size; ++row) {
        const PixelPair<T>& pair = rows[static_cast<std::size_t>(row % s.rows.size)];
        const T* const image = p.input<T>(0) + row / s.rows.size * s.rows.n * from;
        const T *const a = image + pair.low * from, *const b = image + pair.high * from;
        T* const y = p.output<T>() + row * to;
        if (from <= kBuffer) {
          mix_rows(a, b, pair, from, buffer);
          mix_columns(buffer, columns.data(), s.columns.size, s.channels, y);
        } else {
          mix_both(a, b, pair, columns.data(), s.columns.size, s.channels, y);
        }
      }
    };
  });
}

KernelRun resize_bilinear_reference(KernelPlan& plan) {
  const ResizedImages s = resized_images(plan.input(0).shape, plan.output().shape);
  return typed_kernel(plan, [s]<class T>(T, const KernelPointers& p) {
    const std::int64_t image = s.rows.size * s.columns.size * s.channels;
    for (std::int64_t i = p.begin() * image; i < p.end() * image; ++i) {
      const std::int64_t c = i % s.channels, pixel = i / s.channels;
      const auto column = s.columns.pair<T>(pixel % s.columns.size);
      const auto row = s.rows.pair<T>(pixel / s.columns.size % s.rows.size);
      const T* const x = p.input<T>(0) + i / image * s.rows.n * s.columns.n * s.channels + c;
      const auto at = [&](std::int64_t y, std::int64_t x_of) {
        return x[(y * s.columns.n + x_of) * s.channels];
      };
      p.output<T>()[i] =
          between(between(at(row.low, column.low), at(row.high, column.low), row),
                  between(at(row.low, column.high), at(row.high, column.high), row), column);
    }
  });
}

// The pixels of the result that take a pixel of x, and their weights.
template <class T>
struct TakingPixels {
  explicit TakingPixels(const ResizedAxis& axis) {
    for (std::int64_t j = 0; j < axis.n; ++j) {
      starts.push_back(pixels.size());
      for (std::int64_t i = axis.first_taking(j); i < axis.end_taking(j); ++i)
        if (const PixelPair<T> pair = axis.pair<T>(i); pair.has(j))
          pixels.push_back({i, pair.weight(j)});
    }
    starts.push_back(pixels.size());
  }
  struct Pixel {
    std::int64_t i;
    T weight;
  };
  auto of(std::int64_t j) const {
    const auto at = static_cast<std::size_t>(j);
    return std::span(pixels).subspan(starts[at], starts[at + 1] - starts[at]);
  }

  std::vector<Pixel> pixels;
  std::vector<std::size_t> starts;
};

template <class T>
BELFRY_KERNEL void add_weighed(const T* from, T weight, std::int64_t count, T* to) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) to[i] += weight * from[i];
}

KernelRun resize_bilinear_grad_cpu(KernelPlan& plan) {
  const ResizedImages s = resized_images(plan.output().shape, plan.input(0).shape);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [s, rows = TakingPixels<T>(s.rows),
            columns = TakingPixels<T>(s.columns)](const KernelPointers& p) {
      for (std::int64_t r = p.begin() * s.rows.n; r < p.end() * s.rows.n; ++r) {
        const T* const image =
            p.input<T>(0) + r / s.rows.n * s.rows.size * s.columns.size * s.channels;
        for (std::int64_t c = 0; c < s.columns.n; ++c) {
          T* const dx = p.output<T>() + (r * s.columns.n + c) * s.channels;
          std::fill_n(dx, s.channels, T(0));
          for (const auto& row : rows.of(r % s.rows.n))
            for (const auto& column : columns.of(c))
              add_weighed(image + (row.i * s.columns.size + column.i) * s.channels,
                          row.weight * column.weight, s.channels, dx);
        }
      }
    };
  });
}

// Goes through the result, and adds to the pixels that each of its pixels takes.
KernelRun resize_bilinear_grad_reference(KernelPlan& plan) {
  const ResizedImages s = resized_images(plan.output().shape, plan.input(0).shape);
  return typed_kernel(plan, [s]<class T>(T, const KernelPointers& p) {
    const std::int64_t image = s.rows.n * s.columns.n * s.channels;
    const std::int64_t taken = s.rows.size * s.columns.size * s.channels;
    std::fill(p.output<T>() + p.begin() * image, p.output<T>() + p.end() * image, T(0));
    for (std::int64_t i = p.begin() * taken; i < p.end() * taken; ++i) {
      const std::int64_t c = i % s.channels, pixel = i / s.channels;
      const auto column = s.columns.pair<T>(pixel % s.columns.size);
      const auto row = s.rows.pair<T>(pixel / s.columns.size % s.rows.size);
      T* const dx = p.output<T>() + i / taken * image + c;
      for (const bool below : {false, true})
        for (const bool right : {false, true})
          dx[((below ? row.high : row.low) * s.columns.n + (right ? column.high : column.low)) *
             s.channels] += (below ? row.high_weight : row.low_weight) *
                            (right ? column.high_weight : column.low_weight) * p.input<T>(0)[i];
    }
  });
}

}  // namespace

const Op kResizeBilinear{.name = "ResizeBilinear",
                         .inputs = 1,
                         .shape = resize_bilinear_shape,
                         .gradient = resize_bilinear_gradient<kResizeBilinearGrad>,
                         .split = WorkSplit::kRows,
                         .shards = by_rows<1>,
                         .cpu = resize_bilinear_cpu,
                         .reference = resize_bilinear_reference};
const StoredOptions<ImageSize> kStoredResizeBilinear(kResizeBilinear);
const Op kResizeBilinearGrad{.name = "ResizeBilinearGrad",
                             .inputs = 1,
                             .shape = resize_bilinear_shape,
                             .gradient = resize_bilinear_gradient<kResizeBilinear>,
                             .split = WorkSplit::kRows,
                             .shards = by_rows<1>,
                             .cpu = resize_bilinear_grad_cpu,
                             .reference = resize_bilinear_grad_reference};

Output resize(Output images, ImageSize size, ResizeMethod method, At at) {
  require(images.shape().rank() == 4, "resize (", at.site, "): needs images [N,H,W,C], not ",
          images.type());
  require(size.height > 0 && size.width > 0, "resize (", at.site, "): to ", size.height, " x ",
          size.width, " pixels");
  if (method == ResizeMethod::kBilinear)
    return images.graph().add(kResizeBilinear, {images}, at, NodeOptions(size)).output();
  const AxisMap::Kind kind =
      method == ResizeMethod::kNearest ? AxisMap::Kind::kNearest : AxisMap::Kind::kNearestExact;
  const auto map = [&](std::int64_t before, std::int64_t after) {
    return before == after ? AxisMap() : AxisMap{.kind = kind, .a = after};
  };
  const Shape& x = images.shape();
  return map_axes(images, {{}, map(x[1], size.height), map(x[2], size.width), {}}, 0, at);
}

}  // namespace belfry
