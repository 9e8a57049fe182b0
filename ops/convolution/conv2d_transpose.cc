#include "belfry/ops/convolution/conv2d_transpose.h"

#include "belfry/framework/base/require.h"

namespace belfry {
namespace {

// One axis of the options.
struct TransposedAxis {
  const char* name;
  std::int64_t stride, dilation;
  AxisPadding padding;
};

// 0 if a size is not known: the shape function refuses it.
std::int64_t transposed_size(std::int64_t in, std::int64_t window, const TransposedAxis& axis,
                             SourceLine site) {
  const auto [before, after] = std::pair(axis.padding.before, axis.padding.after);
  require(axis.stride >= 1, "conv2d_transpose (", site.str(),
          "): the stride must be at least 1, not ", axis.stride);
  require(axis.dilation >= 1, "conv2d_transpose (", site.str(),
          "): the dilation must be at least 1, not ", axis.dilation);
  require(before >= 0 && after >= 0, "conv2d_transpose (", site.str(),
          "): padding must not be negative, but the ", axis.name, " has ", before, " before and ",
          after, " after");
  if (in == kUnknownSize || window == kUnknownSize) return 0;
  if (axis.padding.same) return in * axis.stride;
  const std::int64_t whole = (in - 1) * axis.stride + dilated_extent(window, axis.dilation);
  require(whole > before + after, "conv2d_transpose (", site.str(), "): a padding of ", before,
          " before and ", after, " after leaves nothing of a ", axis.name, " of ", whole);
  return whole - before - after;
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
  require_channels(x, filter, options.groups, at.site);
  const auto& [stride, padding, dilation, groups] = options;
  const TransposedAxis down{"height", stride.vertical, dilation.vertical, padding.vertical()};
  const TransposedAxis right{"width", stride.horizontal, dilation.horizontal, padding.horizontal()};
  const std::int64_t height = transposed_size(x.shape()[1], filter.shape()[1], down, at.site);
  const std::int64_t width = transposed_size(x.shape()[2], filter.shape()[2], right, at.site);
  const Conv2dGradOptions size = conv2d_grad_options(options, height, width);
  return x.graph().add(kConv2dGradInput, {x, filter}, at, NodeOptions(size)).output();
}

}  // namespace belfry
