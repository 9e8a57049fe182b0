// Measures the present speed of the machine, to be reported beside every timing.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <latch>
#include <span>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace belfry::bench {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

namespace detail {

// Runs `rounds` of kChains independent chains of fused multiply-adds, as wide as the instruction
// set has them. So many chains hide the latency. Returns the number of operations, two per element.
constexpr int kChains = 12;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) inline double fma_avx512(std::int64_t rounds, float& sink) {
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 factor = _mm512_set1_ps(0.999F), term = _mm512_set1_ps(0.001F);
  for (std::int64_t r = 0; r < rounds; ++r)
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, factor, term);
  for (const __m512& sum : sums) sink += _mm512_cvtss_f32(sum);
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx2,fma"))) inline double fma_avx2(std::int64_t rounds, float& sink) {
  __m256 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 factor = _mm256_set1_ps(0.999F), term = _mm256_set1_ps(0.001F);
  for (std::int64_t r = 0; r < rounds; ++r)
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, factor, term);
  for (const __m256& sum : sums) sink += _mm256_cvtss_f32(sum);
  return 2.0 * 8 * kChains * static_cast<double>(rounds);
}
#endif

inline double fma_scalar(std::int64_t rounds, float& sink) {
  float sums[kChains] = {};
  for (std::int64_t r = 0; r < rounds; ++r)
    for (float& sum : sums) sum = std::fma(sum, 0.999F, 0.001F);
  for (const float sum : sums) sink += sum;
  return 2.0 * kChains * static_cast<double>(rounds);
}

inline double fma_rounds(std::int64_t rounds, float& sink) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return fma_avx512(rounds, sink);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return fma_avx2(rounds, sink);
#endif
  return fma_scalar(rounds, sink);
}

// The seconds that work(thread) takes on `threads` threads at once.
template <class Work>
double timed(int threads, const Work& work) {
  std::latch ready(threads);
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t)
    others.emplace_back([&, t] {
      ready.arrive_and_wait();
      work(t);
    });
  ready.arrive_and_wait();
  const double start = seconds_now();
  work(0);
  for (std::thread& other : others) other.join();
  return seconds_now() - start;
}

// Uses a value, so that the compiler does not remove its computation.
inline void keep(float value) { asm volatile("" : : "m"(value)); }

}  // namespace detail

// The fused multiply-adds in f32 of `threads` threads together: operations per second, two per
// element. Takes about 40 ms.
inline double fma_peak(int threads) {
  constexpr std::int64_t kRounds = 8'000'000;
  std::vector<float> sinks(static_cast<std::size_t>(threads) * 16);  // a cache line each
  std::vector<double> done(static_cast<std::size_t>(threads) * 8);
  const double seconds = detail::timed(threads, [&](int t) {
    const auto line = static_cast<std::size_t>(t);
    done[line * 8] = detail::fma_rounds(kRounds, sinks[line * 16]);
  });
  double operations = 0;
  for (const double part : done) operations += part;
  for (const float sink : sinks) detail::keep(sink);
  return operations / seconds;
}

// Memory for measuring bandwidth, larger than any cache.
class ScaledBuffer {
 public:
  ScaledBuffer() : values_(kElements, 1.0F) {}

  // Bytes per second, read and written, of x *= a in place on `threads` threads.
  double bandwidth(int threads) {
    const std::int64_t part = kElements / threads;
    const double seconds = detail::timed(threads, [&](int t) {
      scale(std::span(values_).subspan(static_cast<std::size_t>(t * part),
                                       static_cast<std::size_t>(part)));
    });
    detail::keep(values_[0]);
    return 2.0 * sizeof(float) * static_cast<double>(part * threads) / seconds;
  }

 private:
  static constexpr std::int64_t kElements = std::int64_t{32} << 20;

  static void scale(std::span<float> values) {
    for (float& value : values) value *= 0.9999F;
  }

  std::vector<float> values_;
};

}  // namespace belfry::bench
