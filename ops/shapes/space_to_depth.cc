#include "belfry/ops/shapes/space_to_depth.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/transpose.h"

namespace belfry {
namespace {

// Height, width and channels of `images`.
struct ImageSizes {
  ImageSizes(Output images, int block, const char* what, At at) {
    const Shape& shape = images.shape();
    require(shape.rank() == 4, what, " (", at.site, "): needs images [N,H,W,C], not ",
            images.type());
    h = shape[1], w = shape[2], c = shape[3];
    require(h != kUnknownSize && w != kUnknownSize && c != kUnknownSize, what, " (", at.site,
            "): all dimensions of ", images.type(), " but the first must be known");
    require(block >= 1, what, " (", at.site, "): blocks of ", block, " pixels");
  }
  std::int64_t h = 0, w = 0, c = 0;
};

// [N,H,W,C] with the axes of its blocks, in this order of [N, h, y, w, x, C].
Output to_depth(Output images, int block, std::vector<int> order, const char* what, At at) {
  const auto [h, w, c] = ImageSizes(images, block, what, at);
  require(h % block == 0 && w % block == 0, what, " (", at.site, "): blocks of ", block,
          " pixels do not divide ", images.type());
  const SiteScope site(images.graph(), at.site);
  const Output blocks = reshape(images, {kUnknownSize, h / block, block, w / block, block, c});
  return reshape(transpose(blocks, std::move(order)),
                 {kUnknownSize, h / block, w / block, c * block * block});
}

// Channels are [y, x, C] if `channels_last`, else [C, y, x].
Output to_space(Output images, int block, bool channels_last, const char* what, At at) {
  const auto [h, w, c] = ImageSizes(images, block, what, at);
  const std::int64_t pixels = std::int64_t{block} * block;
  require(c % pixels == 0, what, " (", at.site, "): blocks of ", block,
          " pixels do not divide the ", c, " channels of ", images.type());
  const SiteScope site(images.graph(), at.site);
  const Output axes =
      channels_last ? transpose(reshape(images, {kUnknownSize, h, w, block, block, c / pixels}),
                                {0, 1, 3, 2, 4, 5})
                    : transpose(reshape(images, {kUnknownSize, h, w, c / pixels, block, block}),
                                {0, 1, 4, 2, 5, 3});
  return reshape(axes, {kUnknownSize, h * block, w * block, c / pixels});
}

}  // namespace

Output space_to_depth(Output images, int block, At at) {
  return to_depth(images, block, {0, 1, 3, 2, 4, 5}, "space_to_depth", at);
}
Output depth_to_space(Output images, int block, At at) {
  return to_space(images, block, true, "depth_to_space", at);
}
Output pixel_unshuffle(Output images, int block, At at) {
  return to_depth(images, block, {0, 1, 3, 5, 2, 4}, "pixel_unshuffle", at);
}
Output pixel_shuffle(Output images, int block, At at) {
  return to_space(images, block, false, "pixel_shuffle", at);
}

}  // namespace belfry
