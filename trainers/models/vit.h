// A vision transformer (Dosovitskiy et al. 2021): an image is a row of patches, read like a
// sentence of words.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "belfry/towers/tower.h"
#include "belfry/trainers/options/own_option.h"

namespace belfry::models {

struct VitSize {
  std::int64_t image_size = 32, patch = 4;  // pixels; patches divide the image
  std::int64_t layers = 4, heads = 4;
  std::int64_t width = 64;
  std::int64_t mlp_width = 0;  // of the dense layers in a block; 0: 4 times `width`
  std::int64_t classes = 10;
  double dropout = 0;  // of embeddings, and inside and after what blocks add
  double norm_epsilon = 1e-5;
};

// image [n,image_size,image_size,channels], label i32 [n] -> the mean cross entropy. Has the output
// "logits" and the metric "accuracy". Positions of patches and the class token are learned. Throws
// OptionMistake, naming the option, for a size that cannot be.
Output vit(Tower& tower, Output image, Output label, const VitSize& size,
           double label_smoothing = 0);

// Flags for the other members of the size than image_size and classes, and --preset, which stands
// for some of them, and for image_flags() of data/images.h: cifar (--data_format=cifar10), ti16,
// s16 and b16 for ImageNet.
std::vector<OwnOption> vit_flags(VitSize& size, std::string& preset);

}  // namespace belfry::models
