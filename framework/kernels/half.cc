#include "belfry/framework/kernels/half.h"

#include "belfry/framework/kernels/half_bits.h"
#if defined(__x86_64__)
#include <immintrin.h>

#include "belfry/framework/base/require.h"
#endif

// target_clones takes no intrinsics, so each instruction set has its own functions. f16 has
// instructions; bf16 is the upper half of f32, for which the compiler's vectors suffice.
namespace belfry::kernels {
namespace {

using Bits = std::uint16_t;

template <auto widen_one>
BELFRY_HD void widen_row(const Bits* from, float* to, std::int64_t begin, std::int64_t count) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < count; ++i) to[i] = widen_one(from[i]);
}
template <auto narrow_one>
BELFRY_HD void narrow_row(const float* from, Bits* to, std::int64_t begin, std::int64_t count) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < count; ++i) to[i] = narrow_one(from[i]);
}

void widen_f16_scalar(const Bits* from, float* to, std::int64_t count) {
  widen_row<widen_f16>(from, to, 0, count);
}
void narrow_f16_scalar(const float* from, Bits* to, std::int64_t count) {
  narrow_row<narrow_f16>(from, to, 0, count);
}
void widen_bf16_scalar(const Bits* from, float* to, std::int64_t count) {
  widen_row<widen_bf16>(from, to, 0, count);
}
void narrow_bf16_scalar(const float* from, Bits* to, std::int64_t count) {
  narrow_row<narrow_bf16>(from, to, 0, count);
}

#if defined(__x86_64__)

constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
constexpr __mmask16 kAll = 0xffff;  // g++ 12 warns of the forms without a mask

[[gnu::target("avx2,f16c")]] void widen_f16_avx2(const Bits* from, float* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  widen_row<widen_f16>(from, to, i, count);
}
[[gnu::target("avx2,f16c")]] void narrow_f16_avx2(const float* from, Bits* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), kNearest));
  narrow_row<narrow_f16>(from, to, i, count);
}
[[gnu::target("avx2")]] void widen_bf16_avx2(const Bits* from, float* to, std::int64_t count) {
  widen_row<widen_bf16>(from, to, 0, count);
}
[[gnu::target("avx2")]] void narrow_bf16_avx2(const float* from, Bits* to, std::int64_t count) {
  narrow_row<narrow_bf16>(from, to, 0, count);
}

[[gnu::target("avx512f")]] void widen_f16_avx512(const Bits* from, float* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    _mm512_storeu_ps(to + i,
                     _mm512_maskz_cvtph_ps(
                         kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
  widen_row<widen_f16>(from, to, i, count);
}
[[gnu::target("avx512f")]] void narrow_f16_avx512(const float* from, Bits* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm512_maskz_cvtps_ph(kAll, _mm512_loadu_ps(from + i), kNearest));
  narrow_row<narrow_f16>(from, to, i, count);
}
[[gnu::target("avx512f")]] void widen_bf16_avx512(const Bits* from, float* to, std::int64_t count) {
  widen_row<widen_bf16>(from, to, 0, count);
}
[[gnu::target("avx512f")]] void narrow_bf16_avx512(const float* from, Bits* to,
                                                   std::int64_t count) {
  narrow_row<narrow_bf16>(from, to, 0, count);
}

std::span<const HalfPath> find_paths() {
  static constexpr HalfPath kPaths[] = {HalfPath::kScalar, HalfPath::kAvx2, HalfPath::kAvx512};
  __builtin_cpu_init();
  // Every processor with AVX2 has F16C.
  const bool avx2 = __builtin_cpu_supports("avx2");
  return std::span(kPaths).first(avx2 ? (__builtin_cpu_supports("avx512f") ? 3 : 2) : 1);
}

#else

std::span<const HalfPath> find_paths() {
  static constexpr HalfPath kPaths[] = {HalfPath::kScalar};
  return kPaths;
}

#endif

}  // namespace

std::span<const HalfPath> half_paths() {
  static const std::span<const HalfPath> paths = find_paths();
  return paths;
}

std::uint16_t half_bits(double value, DType dtype) {
  const auto narrow = half_conversion(dtype, HalfPath::kScalar).narrow;
  const auto rounded = static_cast<float>(value);
  std::uint16_t bits = 0;
  narrow(&rounded, &bits, 1);
  return bits;
}

HalfConversion half_conversion(DType dtype, HalfPath path) {
  const bool f16 = dtype == DType::kF16;
  require<InternalError>(f16 || dtype == DType::kBF16, name_of(dtype), " is no 16-bit type");
#if defined(__x86_64__)
  if (path == HalfPath::kAvx512)
    return f16 ? HalfConversion{widen_f16_avx512, narrow_f16_avx512}
               : HalfConversion{widen_bf16_avx512, narrow_bf16_avx512};
  if (path == HalfPath::kAvx2)
    return f16 ? HalfConversion{widen_f16_avx2, narrow_f16_avx2}
               : HalfConversion{widen_bf16_avx2, narrow_bf16_avx2};
#endif
  require<InternalError>(path == HalfPath::kScalar, "this processor lacks an instruction set");
  return f16 ? HalfConversion{widen_f16_scalar, narrow_f16_scalar}
             : HalfConversion{widen_bf16_scalar, narrow_bf16_scalar};
}

}  // namespace belfry::kernels
