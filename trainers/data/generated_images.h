// Computed images, for a first run on a machine without files, and for benchmarks of whole
// programs. Results on them say nothing about photographs.
#pragma once
#include <cstdint>
#include <memory>

#include "belfry/trainers/data/dataset.h"

namespace belfry::data {

struct GeneratedImages {
  std::int64_t side = 32;  // height and width, pixels
  int classes = 10;
  std::int64_t count = 1000;
  std::uint64_t seed = 1;
};

// Fields: "image" f32 [side,side,3] in about [-2, 2], "label" i32 scalar below `classes`. A class
// is two waves of a colour each; a sample has its own phases, brightness and noise. Sample i is a
// function of (seed, i), made when it is gathered. Throws InvalidArgument unless all sizes are at
// least 1, and a side is at most 16384.
std::unique_ptr<Dataset> generated_images(GeneratedImages wanted);

}  // namespace belfry::data
