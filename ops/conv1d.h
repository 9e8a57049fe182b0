// Convolution and pooling of sequences [n, w, c]: those of images of height 1.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/convolution/padding.h"

namespace belfry {

struct Conv1dOptions {
  int stride = 1;
  // One number, or {before, after}: {dilation * (k - 1), 0} looks back only.
  Padding padding = Padding::kSame;
  int dilation = 1;
  int groups = 1;  // of channels, as in Conv2dOptions
};

// x [n, w, in], filter [out, k, in / groups] -> [n, w', out], sizes as in padding.h. w must be
// known if n is not.
Output conv1d(Output x, Output filter, Conv1dOptions options = {}, At at = {});

struct Pool1dOptions {
  int window = 2;
  int stride = 2;
  Padding padding = Padding::kSame;  // one number, or {before, after}; less than the window
  bool count_include_pad = false;    // of avg_pool1d, as in PoolOptions
};

// x [n, w, c] -> [n, w', c], as max_pool() and avg_pool() of images.
Output max_pool1d(Output x, Pool1dOptions options = {}, At at = {});
Output avg_pool1d(Output x, Pool1dOptions options = {}, At at = {});

}  // namespace belfry
