// Random changes of images for training.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "belfry/trainers/data/decode_image.h"
#include "belfry/trainers/data/map_samples.h"

namespace belfry {

// Functions for map_samples(), of data whose first field is an image f32 [height,width,channels].
// They change samples of training at random:
//   map_samples(map_samples(data::images({.side = 64})(dirs, train), random_shift(4)),
//               random_colours({.brightness = 0.4f}))

// Moves the image by up to `most` pixels, both ways. Zeros fill the gaps.
SampleFunction random_shift(std::int64_t most);
// Mirrors half of the images, left to right.
SampleFunction random_mirror();

// A part of an image, by the recipes of ImageNet.
struct CropChoice {
  float least_area = 0.08f, most_area = 1;  // as a share of the image's
  float least_ratio = 0.75f;                // height to width, or the other way round: up to 1
};
// Draws up to ten parts (Szegedy et al. 2014); if none fits into the image, takes `otherwise`.
ImagePart random_part(std::int64_t height, std::int64_t width, CounterRandom& random,
                      const ImagePart& otherwise, const CropChoice& choice = {});
// Takes such a part, and resizes it to the shape of the new samples (bilinear, without aliases):
// the image's own, or that of the fields that map_samples() is given. Other fields stay as they
// are. Evaluations take all of the image.
//   map_samples(data, {{"image", DType::kF32, {64, 64, 3}}, {"label", DType::kI32, {}}},
//               random_resized_crop())
SampleFunction random_resized_crop(const CropChoice& choice = {});

// What may change at most, from 0 for nothing.
struct ColourChange {
  float brightness = 0;  // added to all values
  float contrast = 0;    // part of the distances from the image's mean: 0.4 for 0.6 to 1.4 times
  float saturation = 0;  // the same, for those of a pixel's values from their mean
};
// Each of the three is drawn anew for each image.
SampleFunction random_colours(ColourChange most);

// Data whose label i32, the second field, becomes f32 [classes]: the probabilities of the classes,
// for softmax_cross_entropy(). In training each sample is mixed with another one (Zhang et al.
// 2018, "mixup"): both images and both labels, with a share drawn from the beta distribution of
// `alpha` and `alpha`, from above 0 to 1. A label that is no class is an error.
std::unique_ptr<Dataset> mix_up(std::unique_ptr<Dataset> data, std::int64_t classes,
                                double alpha = 0.2);

}  // namespace belfry
