// The ops of Fourier transforms, along the axis of numbers that is last. All need a leading one.
#pragma once
#include <cstdint>

#include "belfry/ops/linear_algebra/fft.h"

namespace belfry {

enum class FourierScale : std::uint8_t { kNone, kRoot, kAll };  // divides by 1, sqrt(n), n

// Of kFft. The gradient is the transform with the opposite sign.
struct FourierOptions {
  bool inverse = false;  // exp(+i ...)
  FourierScale scale = FourierScale::kNone;
};

// Of kRealFft and kInverseRealFft. With equal options each is the gradient of the other.
struct RealFourierOptions {
  std::int64_t n = 0;  // real numbers
  FourierScale scale = FourierScale::kNone;
  // A frequency k stands for n - k, too, and so counts twice, unless these are one. Without, it is
  // only one term of sums.
  bool both_signs = false;
};

}  // namespace belfry
