// Images in memory: decoded from JPEG and PNG, and resized.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace belfry {

// Red, green and blue of each pixel, row by row.
struct DecodedImage {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  // [height,width,3]
};

// More pixels are refused before memory is taken for them.
inline constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;

// By libjpeg-turbo or libpng, as the first bytes say. Grey and CMYK images become RGB, what is
// transparent black. Throws InvalidArgument saying what is wrong: no image of these kinds, more
// than `most` pixels, data that are corrupt or end early.
DecodedImage decode_image(std::span<const std::byte> file, std::int64_t most = kMostPixels);

// A part of an image, in pixels; may begin and end between them.
struct ImagePart {
  double top = 0, left = 0, height = 0, width = 0;
};

// The part, resized to side x side: each pixel is the mean of those below it, weighted by a
// triangle twice as wide as it is, and at least two pixels of the image. `out` takes [side,side,3]
// values from 0 to 255; mirrored, from right to left.
void resize_image(const DecodedImage& image, const ImagePart& part, std::int64_t side,
                  bool mirrored, std::span<float> out);

}  // namespace belfry
