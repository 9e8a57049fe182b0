// Sliding windows over images: output sizes and padding of convolution and pooling.
#pragma once
#include <cstdint>

#include "belfry/framework/graph/op.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/convolution/padding.h"

namespace belfry {

// A window along one axis.
struct WindowAxis {
  std::int64_t in = 0, out = 0;
  std::int64_t window = 0, stride = 0;
  std::int64_t before = 0, after = 0;  // pixels of padding

  WindowAxis(std::int64_t in, std::int64_t window, std::int64_t stride, AxisPadding padding);

  // The part of the window at output position o that lies inside the image, as offsets in the
  // window. Empty, with end <= begin, if the whole window is padding.
  BELFRY_HD WorkRange inside(std::int64_t o) const {
    const std::int64_t start = o * stride - before;
    return {start < 0 ? -start : 0, start + window > in ? in - start : window};
  }
  // Whether windows stay where they are if `before` pixels are also the padding after the image.
  bool pads_evenly() const {
    const std::int64_t rest = in + 2 * before - window;
    return rest >= 0 && rest / stride + 1 == out;
  }
};

// Pixels from the first to the last of `taps` that are `dilation` pixels apart, both counted.
constexpr std::int64_t dilated_extent(std::int64_t taps, std::int64_t dilation) {
  return (taps - 1) * dilation + 1;
}

// The output size of a window over `in` pixels; kUnknownSize if `in` is unknown. Refuses windows
// that do not fit, by c.require; `axis` is "height" or "width".
std::int64_t window_output(const ShapeContext& c, const char* axis, std::int64_t in,
                           std::int64_t window, std::int64_t stride, AxisPadding padding,
                           std::int64_t dilation = 1);

// Windows over each channel. Padding is less than the window.
struct PoolOptions {
  PerAxis window = 2;
  PerAxis stride = 2;
  Padding padding = Padding::kSame;
  // Whether avg_pool divides by the whole window, as PyTorch does by default; or, as TensorFlow, by
  // the pixels of the image under it.
  bool count_include_pad = false;
};

// Options of the gradient ops, which cannot derive the size of the image from their inputs.
struct PoolGradOptions {
  PerAxis window = 2;
  PerAxis stride = 2;
  Padding padding = Padding::kSame;
  std::int64_t height = 0, width = 0;
  bool count_include_pad = false;
};
PoolGradOptions pool_grad_options(const PoolOptions& options, const Shape& image);
// The options of the pooling that this is the gradient of.
PoolOptions pool_options(const PoolGradOptions& options);

// The shape of pooled images, and of the images that pooled ones come from.
Shape pool_output(const ShapeContext& c);
Shape pool_input(const ShapeContext& c);

}  // namespace belfry
