// 16-bit floating point, one value at a time, for hosts and GPUs. A value is passed as its bits.
#pragma once
#include <cstdint>

#include "belfry/framework/base/dtype.h"
#include "belfry/framework/kernels/math.h"

namespace belfry::kernels {

BELFRY_HD float widen_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) {  // infinity, or NaN, made quiet
    const std::uint32_t quiet = rest > 0x7c00u ? 0x400000u : 0;
    return math::from_bits<float>(sign | 0x7f800000u | rest << 13 | quiet);
  }
  // Exponents of f32 are 112 higher. Subnormals are multiples of 2^-24.
  if (rest >= 0x400u) return math::from_bits<float>(sign | ((rest << 13) + (112u << 23)));
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;
  return math::from_bits<float>(sign | math::to_bits(magnitude));
}

BELFRY_HD std::uint16_t narrow_f16(float value) {
  const std::uint32_t bits = math::to_bits(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  std::uint32_t result;
  if (rest > 0x7f800000u) {
    result = 0x7e00u | (rest >> 13 & 0x3ffu);
  } else if (rest >= 0x477ff000u) {  // from 65520 up, halfway between the largest f16 and the next
                                     // power of two
    result = 0x7c00u;
  } else if (rest >= 0x38800000u) {  // 2^-14: normal
    result = (rest - (112u << 23) + 0xfffu + (rest >> 13 & 1u)) >> 13;
  } else {  // the addition rounds to multiples of 2^-24
    const float shifted = math::from_bits<float>(rest) + 0.5f;
    result = math::to_bits(shifted) - 0x3f000000u;
  }
  return static_cast<std::uint16_t>(sign | result);
}

BELFRY_HD float widen_bf16(std::uint16_t bits) {
  return math::from_bits<float>(static_cast<std::uint32_t>(bits) << 16);
}

BELFRY_HD std::uint16_t narrow_bf16(float value) {
  const std::uint32_t bits = math::to_bits(value);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const std::uint32_t nan = bits >> 16 | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};

// The type in which elements of type T are computed, with conversions to it and back.
template <class T>
struct Stored {
  using Type = T;
  BELFRY_HD static T widen(T x) { return x; }
  BELFRY_HD static T narrow(T x) { return x; }
};
template <>
struct Stored<F16> {
  using Type = float;
  BELFRY_HD static float widen(F16 x) { return widen_f16(x.bits); }
  BELFRY_HD static F16 narrow(float x) { return {narrow_f16(x)}; }
};
template <>
struct Stored<BF16> {
  using Type = float;
  BELFRY_HD static float widen(BF16 x) { return widen_bf16(x.bits); }
  BELFRY_HD static BF16 narrow(float x) { return {narrow_bf16(x)}; }
};

// Calls f(F16{}) or f(BF16{}), else visit(dtype, f).
template <class Visit, class F>
auto visit_half_or(DType dtype, const Visit& visit, const F& f) {
  if (dtype == DType::kF16) return f(F16{});
  if (dtype == DType::kBF16) return f(BF16{});
  return visit(dtype, f);
}

}  // namespace belfry::kernels
