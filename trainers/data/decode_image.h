// Images in memory: decoded from JPEG and PNG, and resized.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace belfry {

// Whole pixels of an image.
struct PixelBox {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
};

// Red, green and blue of each pixel, row by row.
struct DecodedImage {
  std::int64_t height = 0, width = 0;     // of the whole image
  PixelBox box = {};                      // the part of it that is here
  std::vector<std::uint8_t> pixels = {};  // [box.height,box.width,3]
};

// The pixels that are needed of an image of this height and width.
using ChooseBox = std::function<PixelBox(std::int64_t height, std::int64_t width)>;

// Larger images are refused before memory is taken for them.
inline constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;

// The limit of a JPEG image's scans times its pixels. kLeastScans scans are always allowed; most
// progressive images have ten. A scan of a few bytes costs as much as one of all pixels.
inline constexpr std::int64_t kMostPixelsInScans = std::int64_t{1} << 30;
inline constexpr int kLeastScans = 20, kMostScans = 500;

// Decodes by libjpeg-turbo or libpng, as the first bytes say. Grey and CMYK images become RGB,
// transparent pixels black. Throws InvalidArgument saying what is wrong: no image of these kinds,
// more than `most` pixels, too many scans, data that are corrupt or end early.
//
// With `choose` a JPEG image is decoded only as far as the chosen box needs; the box of the result
// may be larger. Its data after that box are then only looked at for their end.
DecodedImage decode_image(std::span<const std::byte> file, std::int64_t most = kMostPixels,
                          const ChooseBox& choose = {});

// A part of an image, in pixels; it may begin and end between pixels.
struct ImagePart {
  double top = 0, left = 0, height = 0, width = 0;
};

// The pixels of a line that make each pixel of a resized one, and their weights: a triangle twice
// as wide as the new pixel, and at least two old pixels wide.
class PixelTaps {
 public:
  // Of the part [begin, begin + length) of a line of `size` pixels, which becomes `pixels`.
  PixelTaps(double begin, double length, std::int64_t pixels, std::int64_t size);

  // Of new pixel i.
  std::int64_t first(std::size_t i) const { return taps_[i].first; }
  std::span<const float> weights(std::size_t i) const {
    return std::span(weights_).subspan(taps_[i].begin, taps_[i].count);
  }

 private:
  struct Taps {
    std::int64_t first;
    std::size_t begin, count;  // in weights_
  };
  std::vector<Taps> taps_;
  std::vector<float> weights_;
};

// The pixels that resize_image() takes of an image of this size.
PixelBox box_of(const ImagePart& part, std::int64_t side, std::int64_t height, std::int64_t width);

// Resizes the part to side x side; the image must have box_of() it. Each new pixel is a mean of the
// image's pixels, weighted by PixelTaps. `out` takes [side,side,3] values from 0 to 255; mirrored,
// from right to left.
void resize_image(const DecodedImage& image, const ImagePart& part, std::int64_t side,
                  bool mirrored, std::span<float> out);

}  // namespace belfry
