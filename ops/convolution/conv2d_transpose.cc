#include "belfry/ops/convolution/conv2d_transpose.h"

#include "belfry/framework/base/require.h"

namespace belfry {
namespace {

// 0 if a size is not known: the shape function refuses it.
std::int64_t transposed_size(std::int64_t in, std::int64_t window, const Conv2dOptions& options) {
  if (in == kUnknownSize || window == kUnknownSize) return 0;
  return options.padding == Padding::kSame
             ? in * options.stride
             : (in - 1) * options.stride + dilated_extent(window, options.dilation);
}

void require_channels(const Output& x, const Output& filter, int groups, SourceLine site) {
  const std::int64_t channels = x.shape()[3], taken = filter.shape()[0];
  require(channels == taken || channels == kUnknownSize || taken == kUnknownSize,
          "conv2d_transpose (", site.str(),
          "): channels of image [n,h,w,in] and filter [in,kh,kw,out/groups] differ: ", x.shape(),
          " and ", filter.shape());
  require(groups >= 1, "conv2d_transpose (", site.str(), "): groups must be at least 1, not ",
          groups);
  require(taken == kUnknownSize || taken % groups == 0, "conv2d_transpose (", site.str(),
          "): ", taken, " channels of the image cannot be divided into groups of one size; ",
          groups, " groups are asked for");
}

}  // namespace

Output conv2d_transpose(Output x, Output filter, Conv2dOptions options, At at) {
  const bool images = x.shape().rank() == 4 && filter.shape().rank() == 4;
  require(images, "conv2d_transpose (", at.site.str(),
          "): takes images and a filter of rank 4, not ", x.type(), " and ", filter.type());
  for (const auto& [what, value] :
       {std::pair("stride", options.stride), std::pair("dilation", options.dilation)})
    require(value >= 1, "conv2d_transpose (", at.site.str(), "): the ", what,
            " must be at least 1, not ", value);
  require_channels(x, filter, options.groups, at.site);
  const Conv2dGradOptions size =
      conv2d_grad_options(options, transposed_size(x.shape()[1], filter.shape()[1], options),
                          transposed_size(x.shape()[2], filter.shape()[2], options));
  return x.graph().add(kConv2dGradInput, {x, filter}, at, NodeOptions(size)).output();
}

}  // namespace belfry
