// Random numbers that are a function of (key, counter): no state, the same on every machine and
// with every standard library. The mixing function is splitmix64's (Steele, Lea, Flood 2014).
#pragma once
#include <cstdint>

#include "belfry/framework/kernels/counter.h"

namespace belfry {

constexpr std::uint64_t mix_bits(std::uint64_t x) {
  return kernels::scramble(x + 0x9E3779B97F4A7C15u);
}

// A key for a pair, e.g. (seed, epoch). Different pairs give unrelated streams.
constexpr std::uint64_t combine_key(std::uint64_t a, std::uint64_t b) {
  return mix_bits(mix_bits(a) ^ (b * 0xD1342543DE82EF95u + 1));
}

// The stream of one key, drawn in order.
class CounterRandom {
 public:
  constexpr explicit CounterRandom(std::uint64_t key) : key_(key) {}

  // 64 independent bits.
  constexpr std::uint64_t bits() { return mix_bits(key_ + 0x9E3779B97F4A7C15u * counter_++); }

  // A number in [0, bound), bound > 0. The bias, bound / 2^64, is far below what any data set can
  // show.
  constexpr std::uint64_t below(std::uint64_t bound) { return bits() % bound; }

  // A number in [low, high), with 24 random bits.
  constexpr float uniform(float low, float high) {
    return low + (high - low) * (static_cast<float>(bits() >> 40) * 0x1p-24f);
  }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace belfry
