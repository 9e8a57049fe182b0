// Transposed convolution, which makes images larger: the gradient of Conv2d as a forward op
// (Dumoulin and Visin 2016).
#pragma once
#include "belfry/ops/convolution/conv2d.h"

namespace belfry {

// x [n, h, w, in], filter [in, kh, kw, out / groups] -> [n, h', w', out], so that conv2d() by the
// same filter and options leads back to x's shape. h' is stride * h for kSame, and
// stride * (h - 1) + dilation * (kh - 1) + 1 for kValid. Each pixel of x adds its multiple of the
// filter, stride pixels further than the pixel before it, with taps that are `dilation` pixels
// apart. Height and width must be known. Throws InvalidArgument if the channels differ, or cannot
// be divided by the groups.
Output conv2d_transpose(Output x, Output filter, Conv2dOptions options = {}, At at = {});

}  // namespace belfry
