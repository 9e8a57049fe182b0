// Conv2d: convolution of NHWC images (cross-correlation, as is usual), with its two gradients.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/kernels/window.h"

namespace belfry {

struct Conv2dOptions {
  int stride = 1;  // pixels, both axes
  Padding padding = Padding::kSame;
};

// x [n, h, w, in], filter [out, kh, kw, in] -> [n, h', w', out], sizes as in window.h. f32 and f64.
// Throws InvalidArgument if the channels differ or the filter does not fit.
extern const Op kConv2d;
Output conv2d(Output x, Output filter, Conv2dOptions options = {}, At at = {});

// What the gradients cannot tell from their inputs: the size of the image, or of the filter.
struct Conv2dGradOptions {
  int stride = 1;
  Padding padding = Padding::kSame;
  std::int64_t height = 0, width = 0;
};

// dy [n, h', w', out], filter -> dx [n, height, width, in].
extern const Op kConv2dGradInput;
// x, dy -> the gradient of the filter [out, height, width, in]. A part is a range of images;
// partial gradients are added.
extern const Op kConv2dGradFilter;

}  // namespace belfry
