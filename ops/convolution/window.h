// Sliding windows over images: output sizes and padding of convolution and pooling.
#pragma once
#include <cstdint>

#include "belfry/framework/graph/op.h"
#include "belfry/framework/kernels/simd.h"

namespace belfry {

enum class Padding : std::uint8_t {
  kSame,   // out = ceil(in / stride); an odd pixel of padding goes to the bottom and right
  kValid,  // no padding: out = floor((in - window) / stride) + 1
};

// A window along one axis.
struct WindowAxis {
  std::int64_t in = 0, out = 0;
  std::int64_t window = 0, stride = 0;
  std::int64_t before = 0, after = 0;  // pixels of padding

  WindowAxis(std::int64_t in, std::int64_t window, std::int64_t stride, Padding padding);

  // The part of the window at output position o that lies inside the image, as offsets in the
  // window.
  BELFRY_HD WorkRange inside(std::int64_t o) const {
    const std::int64_t start = o * stride - before;
    return {start < 0 ? -start : 0, start + window > in ? in - start : window};
  }
};

// Pixels from the first to the last of `taps` that are `dilation` pixels apart, both counted.
constexpr std::int64_t dilated_extent(std::int64_t taps, std::int64_t dilation) {
  return (taps - 1) * dilation + 1;
}

// The output size of a window over `in` pixels; kUnknownSize if `in` is unknown. Refuses windows
// that do not fit, by c.require; `axis` is "height" or "width".
std::int64_t window_output(const ShapeContext& c, const char* axis, std::int64_t in,
                           std::int64_t window, std::int64_t stride, Padding padding,
                           std::int64_t dilation = 1);

// Square windows over each channel.
struct PoolOptions {
  int window = 2;
  int stride = 2;
  Padding padding = Padding::kSame;
};

// Options of the gradient ops, which cannot derive the size of the image from their inputs.
struct PoolGradOptions {
  int window = 2;
  int stride = 2;
  Padding padding = Padding::kSame;
  std::int64_t height = 0, width = 0;
};
PoolGradOptions pool_grad_options(const PoolOptions& options, const Shape& image);

// The shape of pooled images, and of the images that pooled ones come from.
Shape pool_output(const ShapeContext& c);
Shape pool_input(const ShapeContext& c);

}  // namespace belfry
