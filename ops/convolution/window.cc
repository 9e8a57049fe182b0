#include "belfry/ops/convolution/window.h"

#include <algorithm>

#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

std::int64_t output_size(std::int64_t in, std::int64_t window, std::int64_t stride,
                         Padding padding) {
  if (padding == Padding::kSame) return (in + stride - 1) / stride;
  return in < window ? 0 : (in - window) / stride + 1;
}

}  // namespace

WindowAxis::WindowAxis(std::int64_t in_size, std::int64_t window_size, std::int64_t window_stride,
                       Padding padding)
    : in(in_size),
      out(output_size(in_size, window_size, window_stride, padding)),
      window(window_size),
      stride(window_stride) {
  if (padding == Padding::kValid) return;
  const std::int64_t total = std::max<std::int64_t>(0, (out - 1) * stride + window - in);
  before = total / 2;
  after = total - before;
}

std::int64_t window_output(const ShapeContext& c, const char* axis, std::int64_t in,
                           std::int64_t window, std::int64_t stride, Padding padding,
                           std::int64_t dilation) {
  c.require(stride >= 1, "stride must be at least 1, not ", stride);
  c.require(window >= 1 || window == kUnknownSize, "window must be at least 1, not ", window);
  c.require(dilation >= 1, "dilation must be at least 1, not ", dilation);
  if (in == kUnknownSize || window == kUnknownSize) return kUnknownSize;
  const std::int64_t pixels = dilated_extent(window, dilation);
  const std::int64_t out = output_size(in, pixels, stride, padding);
  c.require(out >= 1, "a window of ", window,
            dilation > 1 ? cat(" with dilation ", dilation, ", which is ", pixels, " pixels,") : "",
            " does not fit an image of ", axis, " ", in, "; use Padding::kSame or a larger image");
  return out;
}

PoolGradOptions pool_grad_options(const PoolOptions& options, const Shape& image) {
  const auto known = [](std::int64_t size) { return std::max<std::int64_t>(0, size); };
  return {options.window, options.stride, options.padding, known(image[1]), known(image[2])};
}

Shape pool_output(const ShapeContext& c) {
  c.require_floating(0);
  c.require_rank(0, 4);
  const Shape& x = c.input(0);
  const auto [window, stride, padding] = c.options<PoolOptions>();
  return {x[0], window_output(c, "height", x[1], window, stride, padding),
          window_output(c, "width", x[2], window, stride, padding), x[3]};
}

Shape pool_input(const ShapeContext& c) {
  c.require_floating(0);
  c.require_rank(0, 4);
  const auto& options = c.options<PoolGradOptions>();
  c.require(options.height > 0 && options.width > 0,
            "the size of images must be known when gradients are built; give the placeholder a "
            "height and width");
  return {c.input(0)[0], options.height, options.width, c.input(0)[3]};
}

}  // namespace belfry
