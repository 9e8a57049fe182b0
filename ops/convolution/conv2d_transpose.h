// Transposed convolution, which makes images larger: the gradient of Conv2d as a forward op
// (Dumoulin and Visin 2016).
#pragma once
#include "belfry/ops/convolution/conv2d.h"

namespace belfry {

// x [n, h, w, in], filter [in, kh, kw, out / groups] -> [n, h', w', out], so that conv2d() with the
// same filter and options leads back to x's shape. Each pixel of x adds its multiple of the filter,
// `stride` pixels after the previous one, with taps `dilation` pixels apart. h' is stride * h for
// kSame. Other padding is cut off: stride * (h - 1) + dilation * (kh - 1) + 1 - top - bottom.
// `output_padding` of PyTorch is that much less padding at the bottom and right. Height and width
// must be known. Throws InvalidArgument if the channels differ, or are not divisible by the groups.
Output conv2d_transpose(Output x, Output filter, Conv2dOptions options = {}, At at = {});

}  // namespace belfry
