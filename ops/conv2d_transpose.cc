#include "belfry/ops/conv2d_transpose.h"

#include "belfry/framework/base/require.h"

namespace belfry {
namespace {

// 0 for what is not known: the shape function refuses it.
std::int64_t transposed_size(std::int64_t in, std::int64_t window, const Conv2dOptions& options) {
  if (in == kUnknown || window == kUnknown) return 0;
  return options.padding == Padding::kSame ? in * options.stride
                                           : (in - 1) * options.stride + window;
}

}  // namespace

Output conv2d_transpose(Output x, Output filter, Conv2dOptions options, At at) {
  const bool images = x.shape().rank() == 4 && filter.shape().rank() == 4;
  require(images, "conv2d_transpose (", at.site.str(),
          "): takes images and a filter of rank 4, not ", x.type(), " and ", filter.type());
  require(options.stride >= 1, "conv2d_transpose (", at.site.str(),
          "): the stride must be at least 1, not ", options.stride);
  const Conv2dGradOptions size{options.stride, options.padding,
                               transposed_size(x.shape()[1], filter.shape()[1], options),
                               transposed_size(x.shape()[2], filter.shape()[2], options)};
  return x.graph().add(kConv2dGradInput, {x, filter}, at, NodeOptions(size)).output();
}

}  // namespace belfry
