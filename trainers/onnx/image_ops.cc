#include "belfry/framework/base/text.h"
#include "belfry/ops/convolution/avg_pool.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/shapes/resize.h"
#include "belfry/trainers/onnx/op_writers_impl.h"

namespace belfry::onnx {
namespace {

constexpr Layout kFirst = Layout::kChannelsFirst;

// Windows over images of this size, along both axes.
struct Windows {
  Windows(const Shape& image, PerAxis window, PerAxis stride, const Padding& padding)
      : down(image[1], window.vertical, stride.vertical, padding.vertical()),
        right(image[2], window.horizontal, stride.horizontal, padding.horizontal()) {}

  WindowAxis down, right;

  Ints pads() const { return {down.before, right.before, down.after, right.after}; }
};

// Padding in numbers: ONNX's SAME_UPPER would be kSame, but runtimes differ in what they support.
Ints pads_of(const Node& node, const Shape& image, PerAxis window, PerAxis stride,
             const Padding& padding) {
  const bool known = image[1] != kUnknownSize && image[2] != kUnknownSize;
  if (padding == Padding::kSame && !known)
    refuse(node,
           cat("its padding follows from height and width, but these are unknown in ", image));
  if (padding == Padding::kSame) return Windows(image, window, stride, padding).pads();
  const AxisPadding down = padding.vertical(), right = padding.horizontal();
  return {down.before, right.before, down.after, right.after};
}

Ints pair_of(PerAxis numbers) { return {numbers.vertical, numbers.horizontal}; }

PerAxis extent_of(const Shape& filter, PerAxis dilation) {
  return {static_cast<int>(dilated_extent(filter[1], dilation.vertical)),
          static_cast<int>(dilated_extent(filter[2], dilation.horizontal))};
}

Attributes convolution_attributes(const Shape& filter, const Conv2dOptions& options, Ints pads) {
  return {{"kernel_shape", Ints{filter[1], filter[2]}},
          {"strides", pair_of(options.stride)},
          {"pads", std::move(pads)},
          {"dilations", pair_of(options.dilation)},
          {"group", std::int64_t{options.groups}}};
}

void write_conv2d(OnnxGraph& g, const Node& node) {
  const auto& options = node.options<Conv2dOptions>();
  const Output x = node.input(0), filter = node.input(1);
  const Ints pads = pads_of(node, x.shape(), extent_of(filter.shape(), options.dilation),
                            options.stride, options.padding);
  g.set(node.output(),
        g.add("Conv", {g.in(x, kFirst), g.in(filter, kFirst)},
              convolution_attributes(filter.shape(), options, pads)),
        kFirst);
}

// The pixels that no window of the convolution reaches, after those that it pads.
std::int64_t rest_of(const WindowAxis& axis) {
  return axis.in + axis.before + axis.after - ((axis.out - 1) * axis.stride + axis.window);
}

// conv2d_transpose(): dy is its image.
void write_conv2d_transpose(OnnxGraph& g, const Node& node) {
  const auto& given = node.options<Conv2dGradOptions>();
  const Conv2dOptions options = conv2d_options(given);
  const Output dy = node.input(0), filter = node.input(1);
  const Windows windows({1, given.height, given.width, 1},
                        extent_of(filter.shape(), options.dilation), options.stride,
                        options.padding);
  Attributes attributes = convolution_attributes(filter.shape(), options, windows.pads());
  attributes.push_back({"output_padding", Ints{rest_of(windows.down), rest_of(windows.right)}});
  g.set(node.output(), g.add("ConvTranspose", {g.in(dy, kFirst), g.in(filter, kFirst)}, attributes),
        kFirst);
}

Attributes pool_attributes(const Node& node) {
  const auto& options = node.options<PoolOptions>();
  const Ints pads =
      pads_of(node, node.input(0).shape(), options.window, options.stride, options.padding);
  return {{"kernel_shape", pair_of(options.window)},
          {"strides", pair_of(options.stride)},
          {"pads", pads}};
}

void write_max_pool(OnnxGraph& g, const Node& node) {
  g.set(node.output(), g.add("MaxPool", {g.in(node.input(0), kFirst)}, pool_attributes(node)),
        kFirst);
}

void write_avg_pool(OnnxGraph& g, const Node& node) {
  Attributes attributes = pool_attributes(node);
  attributes.push_back({"count_include_pad",
                        static_cast<std::int64_t>(node.options<PoolOptions>().count_include_pad)});
  g.set(node.output(), g.add("AveragePool", {g.in(node.input(0), kFirst)}, attributes), kFirst);
}

void write_resize_bilinear(OnnxGraph& g, const Node& node) {
  const auto [height, width] = node.options<ImageSize>();
  const std::string x = g.in(node.input(0), kFirst);
  const std::string kept =
      g.add("Shape", {x}, {{"start", std::int64_t{0}}, {"end", std::int64_t{2}}});
  const std::string sizes =
      g.add("Concat", {kept, g.ints({height, width})}, {{"axis", std::int64_t{0}}});
  g.set(node.output(),
        g.add("Resize", {x, "", "", sizes},
              {{"mode", std::string("linear")},
               {"coordinate_transformation_mode", std::string("half_pixel")}}),
        kFirst);
}

}  // namespace

std::vector<OpWriter> image_writers() {
  return {{&kConv2d, write_conv2d},
          {&kConv2dGradInput, write_conv2d_transpose},
          {&kMaxPool, write_max_pool},
          {&kAvgPool, write_avg_pool},
          {&kResizeBilinear, write_resize_bilinear}};
}

}  // namespace belfry::onnx
