#include "belfry/ops/convolution/window.h"

#include <algorithm>

#include "belfry/framework/base/text.h"

namespace belfry {

std::string PerAxis::str() const {
  return vertical == horizontal ? cat(vertical) : cat("[", vertical, ",", horizontal, "]");
}

std::string Padding::str() const {
  if (same_) return "0";
  if (*this == kValid) return "1";
  return cat("[", top_, ",", bottom_, ",", left_, ",", right_, "]");
}

namespace {

std::int64_t output_size(std::int64_t in, std::int64_t window, std::int64_t stride,
                         const AxisPadding& padding) {
  if (padding.same) return (in + stride - 1) / stride;
  const std::int64_t padded = in + padding.before + padding.after;
  return padded < window ? 0 : (padded - window) / stride + 1;
}

std::string with_padding(const AxisPadding& padding) {
  if (padding.before == 0 && padding.after == 0) return "";
  return cat(" with a padding of ", padding.before, " before and ", padding.after, " after");
}

// Each window of a pool covers a pixel of the image.
void require_small_padding(const ShapeContext& c, const char* axis, int window,
                           const AxisPadding& padding) {
  c.require(padding.before < window && padding.after < window,
            "padding must be less than the window of ", window, ", but the ", axis, " has ",
            padding.before, " before and ", padding.after, " after");
}

}  // namespace

WindowAxis::WindowAxis(std::int64_t in_size, std::int64_t window_size, std::int64_t window_stride,
                       AxisPadding padding)
    : in(in_size),
      out(output_size(in_size, window_size, window_stride, padding)),
      window(window_size),
      stride(window_stride),
      before(padding.before),
      after(padding.after) {
  if (!padding.same) return;
  const std::int64_t total = std::max<std::int64_t>(0, (out - 1) * stride + window - in);
  before = total / 2;
  after = total - before;
}

std::int64_t window_output(const ShapeContext& c, const char* axis, std::int64_t in,
                           std::int64_t window, std::int64_t stride, AxisPadding padding,
                           std::int64_t dilation) {
  c.require(stride >= 1, "stride must be at least 1, not ", stride);
  c.require(window >= 1 || window == kUnknownSize, "window must be at least 1, not ", window);
  c.require(dilation >= 1, "dilation must be at least 1, not ", dilation);
  c.require(padding.before >= 0 && padding.after >= 0, "padding must not be negative, but the ",
            axis, " has ", padding.before, " before and ", padding.after, " after");
  if (in == kUnknownSize || window == kUnknownSize) return kUnknownSize;
  const std::int64_t pixels = dilated_extent(window, dilation);
  const std::int64_t out = output_size(in, pixels, stride, padding);
  c.require(in >= 1 && out >= 1, "a window of ", window,
            dilation > 1 ? cat(" with dilation ", dilation, ", which is ", pixels, " pixels,") : "",
            " does not fit an image of ", axis, " ", in, with_padding(padding),
            "; use Padding::kSame or a larger image");
  return out;
}

PoolGradOptions pool_grad_options(const PoolOptions& options, const Shape& image) {
  const auto known = [](std::int64_t size) { return std::max<std::int64_t>(0, size); };
  const auto [window, stride, padding, count_include_pad] = options;
  return {window, stride, padding, known(image[1]), known(image[2]), count_include_pad};
}

PoolOptions pool_options(const PoolGradOptions& options) {
  return {options.window, options.stride, options.padding, options.count_include_pad};
}

Shape pool_output(const ShapeContext& c) {
  c.require_floating(0);
  c.require_rank(0, 4);
  const Shape& x = c.input(0);
  const auto [window, stride, padding, count_include_pad] = c.options<PoolOptions>();
  const AxisPadding down = padding.vertical(), right = padding.horizontal();
  const Shape y{x[0], window_output(c, "height", x[1], window.vertical, stride.vertical, down),
                window_output(c, "width", x[2], window.horizontal, stride.horizontal, right), x[3]};
  require_small_padding(c, "height", window.vertical, down);
  require_small_padding(c, "width", window.horizontal, right);
  return y;
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
