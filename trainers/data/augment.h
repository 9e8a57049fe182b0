// Random changes of images for training.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "belfry/trainers/data/map_samples.h"

namespace belfry {

// Functions for map_samples(), of data whose first field is an image f32 [height,width,channels].
// They change samples of training alone:
//   map_samples(map_samples(data::images({.side = 64})(dirs, train), random_shift(4)),
//               random_colours({.brightness = 0.4f}))

// Moves the image by up to `most` pixels, both ways. Zeros fill the gaps.
SampleFunction random_shift(std::int64_t most);
// Mirrors half of the images, left to right.
SampleFunction random_mirror();

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
