// Discrete Fourier transforms, as in torch.fft and np.fft. A complex number is two elements of a
// last axis of size 2, as torch.view_as_real has it: its real and its imaginary part. f32 and f64;
// f32 is computed in f64 and rounded once.
#pragma once
#include <cstdint>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// Which of a transform and its inverse divides by n; kOrtho: both, by its square root.
enum class FftNorm : std::uint8_t { kBackward, kForward, kOrtho };

struct FftOptions {
  std::int64_t n = 0;  // cuts the axis to this size, or appends zeros; 0: its own size
  int axis = -1;       // of the numbers, so for complex x [..., n, 2] the last one is that of n
  FftNorm norm = FftNorm::kBackward;
};

// Of complex x [..., n, 2]. Transforms along two axes are fft(fft(x), {.axis = -2}).
Output fft(Output x, FftOptions options = {}, At at = {});
Output ifft(Output x, FftOptions options = {}, At at = {});

// Of real x [..., n]: its n / 2 + 1 frequencies, [..., n / 2 + 1, 2].
Output rfft(Output x, FftOptions options = {}, At at = {});
// The inverse, of x [..., m, 2]: real, [..., n], where n is 2 (m - 1) unless given. The imaginary
// parts of frequency 0 and, if n is even, n / 2 do not count.
Output irfft(Output x, FftOptions options = {}, At at = {});

// The products of complex numbers: x [..., 2] and y [..., 2], which are broadcast.
Output complex_mul(Output x, Output y, At at = {});

extern const Op kFft;
extern const Op kRealFft;
extern const Op kInverseRealFft;

}  // namespace belfry
