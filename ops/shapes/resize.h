// Images of another size.
#pragma once
#include <cstdint>

#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kResizeBilinear;
extern const Op kResizeBilinearGrad;

// Pixel i of n resized to m lies at (i + 1/2) n / m of the image, whose pixels have their centres
// at 1/2, 3/2, ... (align_corners = false).
enum class ResizeMethod : std::uint8_t {
  kNearest,       // floor(i n / m): PyTorch's "nearest"
  kNearestExact,  // the pixel at that place: TensorFlow 2's "nearest", PyTorch's "nearest-exact"
  kBilinear,      // between the nearest pixels of both rows and columns; without antialiasing
};

struct ImageSize {
  std::int64_t height = 0, width = 0;  // required
};

// images [N,H,W,C] -> [N,height,width,C]. H and W must be known for kBilinear, which takes floating
// types alone.
Output resize(Output images, ImageSize size, ResizeMethod method = ResizeMethod::kNearest,
              At at = {});

}  // namespace belfry
