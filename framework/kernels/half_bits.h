// 16-bit floating point, one value at a time, for hosts and GPUs. A value is given by its bits.
#pragma once
#include <cstdint>

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
  } else if (rest >= 0x477ff000u) {  // from 65520 up, halfway to what would be next
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

}  // namespace belfry::kernels
