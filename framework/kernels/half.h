// 16-bit floating point on hosts, which compute in f32: conversions of rows of f16 and bf16.
#pragma once
#include <cstdint>
#include <span>

#include "belfry/framework/base/dtype.h"

namespace belfry::kernels {

// The instruction sets that conversions are written for. Each gives the bits of kScalar, even for
// NaN.
enum class HalfPath : std::uint8_t { kScalar, kAvx2, kAvx512 };

// Converts rows of `count` elements, which do not overlap. A 16-bit value is passed as its bits.
struct HalfConversion {
  void (*widen)(const std::uint16_t* from, float* to, std::int64_t count);  // exact
  // To nearest, ties to even, with infinities and subnormals; NaN stays NaN.
  void (*narrow)(const float* from, std::uint16_t* to, std::int64_t count);
};

// The paths that this processor has, slowest first.
std::span<const HalfPath> half_paths();
// The bits of `value`, rounded to f32 and then to kF16 or kBF16.
std::uint16_t half_bits(double value, DType dtype);

// The conversion of kF16 or kBF16; `path` is one of half_paths().
HalfConversion half_conversion(DType dtype, HalfPath path = half_paths().back());

}  // namespace belfry::kernels
