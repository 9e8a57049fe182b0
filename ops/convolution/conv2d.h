// Conv2d: convolution of NHWC images (cross-correlation, as is usual), with its two gradients. Also
// dilated and grouped convolution; depthwise convolution has a group per channel.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/convolution/window.h"

namespace belfry {

struct Conv2dOptions {
  PerAxis stride = 1;  // pixels
  Padding padding = Padding::kSame;
  PerAxis dilation = 1;  // pixels from one tap of the filter to the next
  // The number of equal groups into which the channels of x, and of y, are cut. A group of y
  // depends only on the group of x with the same number.
  int groups = 1;
};

// x [n, h, w, in], filter [out, kh, kw, in / groups] -> [n, h', w', out], sizes as in padding.h.
// Throws InvalidArgument if the channels do not match or are not divisible by the groups, or if the
// filter does not fit into the image.
extern const Op kConv2d;
Output conv2d(Output x, Output filter, Conv2dOptions options = {}, At at = {});

// The gradients cannot derive the size of the image, or of the filter, from their inputs.
struct Conv2dGradOptions {
  PerAxis stride = 1;
  Padding padding = Padding::kSame;
  std::int64_t height = 0, width = 0;
  PerAxis dilation = 1;
  int groups = 1;
};
// Unknown sizes become 0, which the shape functions refuse.
Conv2dGradOptions conv2d_grad_options(const Conv2dOptions& options, std::int64_t height,
                                      std::int64_t width);
// The options of the convolution that this is the gradient of.
Conv2dOptions conv2d_options(const Conv2dGradOptions& options);

// dy [n, h', w', out], filter -> dx [n, height, width, in]. Models also use it, through
// conv2d_transpose().
extern const Op kConv2dGradInput;
// x, dy -> the gradient of the filter [out, height, width, in / groups]. A part is a range of
// images; partial gradients are added.
extern const Op kConv2dGradFilter;

}  // namespace belfry
