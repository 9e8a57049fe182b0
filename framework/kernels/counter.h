// Counter-based random numbers, the same on hosts and GPUs: functions of a key (random_key() of
// core_ops/random.h), a step and an element alone.
#pragma once
#include <cstdint>

#include "belfry/framework/kernels/trig.h"

namespace belfry::kernels {

// SplitMix64's finaliser (Steele et al. 2014).
BELFRY_HD std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// 64 random bits.
BELFRY_HD std::uint64_t mix(std::uint64_t key, std::uint64_t step, std::uint64_t element) {
  return scramble(scramble(key + step * 0x9e3779b97f4a7c15) + element * 0xd1342543de82ef95);
}

// In [0, 1), 53 bits.
BELFRY_HD double unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace belfry::kernels

namespace belfry::functors {

// In [low, low + width).
struct Uniform {
  double low, width;
  BELFRY_HD double operator()(std::uint64_t key, std::uint64_t step, std::uint64_t i) const {
    return low + width * kernels::unit(kernels::mix(key, step, i));
  }
};

// Box and Muller (1958); 1 - u lies in (0, 1].
struct Normal {
  double stddev;
  BELFRY_HD double operator()(std::uint64_t key, std::uint64_t step, std::uint64_t i) const {
    using kernels::mix, kernels::unit;
    const double radius = math::sqrt(-2 * math::log(1 - unit(mix(key, step, 2 * i))));
    return stddev * radius * math::cos(2 * 3.141592653589793 * unit(mix(key, step, 2 * i + 1)));
  }
};

}  // namespace belfry::functors
