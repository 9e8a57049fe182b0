// Counter-based random numbers, the same on hosts and GPUs. They depend only on a key (random_key()
// of core_ops/random.h), a step and an element.
#pragma once
#include <cstdint>

#include "belfry/framework/kernels/trig.h"

namespace belfry::kernels {

// SplitMix64's finaliser (Steele et al. 2014).
BELFRY_HD constexpr std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// 64 random bits.
BELFRY_HD std::uint64_t mix(std::uint64_t key, std::uint64_t step, std::uint64_t element) {
  return scramble(scramble(key + step * 0x9e3779b97f4a7c15) + element * 0xd1342543de82ef95);
}

// A number in [0, 1) with 53 bits, made exactly. Its halves are put in the mantissas of large
// numbers, because AVX2 cannot convert vectors of 64-bit integers.
BELFRY_HD double unit(std::uint64_t bits) {
  const std::uint64_t number = bits >> 11;
  const double high = math::from_bits<double>(math::to_bits(0x1p84) | number >> 32);
  const double low = math::from_bits<double>(math::to_bits(0x1p52) | (number & 0xffffffff));
  return ((high - (0x1p84 + 0x1p52)) + low) * 0x1p-53;
}

}  // namespace belfry::kernels

namespace belfry::functors {

// Numbers in [low, low + width).
struct Uniform {
  double low, width;
  template <class T>
  BELFRY_HD T number(std::uint64_t key, std::uint64_t step, std::uint64_t i) const {
    return static_cast<T>(low + width * kernels::unit(kernels::mix(key, step, i)));
  }
};

// Makes a radius of the upper 40 bits and an angle of the lower 24 (Box and Muller 1958). The
// results reach 7.4 standard deviations.
BELFRY_HD float normal_number(float, std::uint64_t key, std::uint64_t step, std::uint64_t i) {
  const std::uint64_t bits = kernels::mix(key, step, i);
  // 1 - u in (0, 1], as u has 40 bits.
  const auto left =
      static_cast<float>(2 - math::from_bits<double>(math::to_bits(1.) | bits >> 24 << 12));
  const float radius = math::sqrt(-2 * math::log(left));
  // A quarter of the circle, and where in it: odd numbers, the same on either side of 0.
  const auto turn = static_cast<std::uint32_t>(bits & 0xffffff);
  const auto within = static_cast<std::int32_t>(2 * (turn & 0x3fffff) + 1) - (1 << 22);
  return radius * math::sin_of(static_cast<float>(within) * 0x1.921fb6p-23f, turn >> 22);
}
// Takes two numbers of 53 bits; 1 - u lies in (0, 1].
BELFRY_HD double normal_number(double, std::uint64_t key, std::uint64_t step, std::uint64_t i) {
  using kernels::mix, kernels::unit;
  const double radius = math::sqrt(-2 * math::log(1 - unit(mix(key, step, 2 * i))));
  return radius * math::cos(2 * 3.141592653589793 * unit(mix(key, step, 2 * i + 1)));
}

struct Normal {
  double stddev;
  template <class T>
  BELFRY_HD T number(std::uint64_t key, std::uint64_t step, std::uint64_t i) const {
    return static_cast<T>(stddev) * normal_number(T(), key, step, i);
  }
};

// Numbers beyond two deviations are drawn again, with other keys.
struct TruncatedNormal {
  double stddev;
  template <class T>
  BELFRY_HD T number(std::uint64_t key, std::uint64_t step, std::uint64_t i) const {
    T drawn = normal_number(T(), key, step, i);
    for (std::uint64_t again = 1; drawn < T(-2) || drawn > T(2); ++again)
      drawn = normal_number(T(), kernels::scramble(key + again), step, i);
    return static_cast<T>(stddev) * drawn;
  }
};

// Calls f with what draws the numbers of RandomNormalOptions.
template <class RandomOptions, class F>
auto visit_normal(const RandomOptions& options, const F& f) {
  if (options.truncated) return f(TruncatedNormal{options.stddev});
  return f(Normal{options.stddev});
}

}  // namespace belfry::functors
