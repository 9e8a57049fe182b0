// Digits drawn from strokes: data for a first run on a machine without files. They are harder to
// tell apart than printed digits, and easier than handwritten ones; results on them say nothing
// about MNIST.
#pragma once
#include <cstdint>

#include "belfry/framework/base/tensor.h"

namespace belfry::data {

inline constexpr std::int64_t kDigitSide = 28;  // pixels

struct LabelledImages {
  Tensor images;  // u8 [count, kDigitSide, kDigitSide], white on black
  Tensor labels;  // u8 [count]
};

// `count` digits: two or three forms of each class, bent, rotated, sheared, scaled and shifted,
// drawn with lines of random width and brightness, with noise. Sample i depends on (seed, i) alone,
// with equal bits on every machine: no library function whose last digit varies is used.
LabelledImages draw_digits(std::int64_t count, std::uint64_t seed);

}  // namespace belfry::data
