// Transposed convolution, which makes images larger: what the gradient of Conv2d computes, as a
// layer of its own (Dumoulin and Visin 2016).
#pragma once
#include "belfry/ops/conv2d.h"

namespace belfry {

// x [n, h, w, in], filter [in, kh, kw, out] -> [n, h', w', out], so that conv2d() by the same
// filter and options leads back to x's shape: h' is stride * h for kSame, and stride * (h - 1) + kh
// for kValid. Each pixel of x adds its multiple of the filter, stride pixels further than the pixel
// before it. Height and width must be known. Throws InvalidArgument if the channels differ.
Output conv2d_transpose(Output x, Output filter, Conv2dOptions options = {}, At at = {});

}  // namespace belfry
