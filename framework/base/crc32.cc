#include "belfry/framework/base/crc32.h"

#include <zlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace belfry {
namespace {

std::uint32_t crc32_of_zlib(std::span<const std::byte> bytes, std::uint32_t before) {
  return static_cast<std::uint32_t>(
      crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

#if defined(__x86_64__)

// The bytes of a message are the coefficients of a polynomial over GF(2): its first bit, the lowest
// one of the first byte, belongs to the highest power of x. The CRC is what remains of it, divided
// by a polynomial of degree 32. So 16 bytes that are followed by n bits can be replaced by their
// product with x^n, or by anything that leaves the same remainder, at the place n bits later. A
// product without carry computes that for 8 bytes at a time.
constexpr std::size_t kBlock = 16, kStreams = 4;
constexpr std::size_t kStride = kBlock * kStreams;

// What remains of x^n, in the upper half of 64 bits, from its highest power down.
constexpr std::uint64_t power_of_x(std::size_t n) {
  constexpr std::uint32_t kPolynomial = 0xEDB88320;  // without x^32, and from x^31 down
  std::uint32_t remainder = 0x80000000;              // x^0
  for (; n > 0; --n) remainder = (remainder >> 1) ^ (remainder & 1 ? kPolynomial : 0);
  return std::uint64_t{remainder} << 32;
}

// A block, moved by so many bytes. A product has 127 bits, which lie in the lower ones of 128, so
// it is one power of x too high. The first 8 bytes are 64 powers above the others.
template <std::size_t kBytes>
[[gnu::target("pclmul")]] __m128i moved(__m128i block) {
  constexpr std::size_t kBits = 8 * kBytes;
  constexpr auto kSecond = static_cast<std::int64_t>(power_of_x(kBits - 1)),
                 kFirst = static_cast<std::int64_t>(power_of_x(kBits + 63));
  const __m128i factors = _mm_set_epi64x(kSecond, kFirst);
  return _mm_xor_si128(_mm_clmulepi64_si128(block, factors, 0x00),
                       _mm_clmulepi64_si128(block, factors, 0x11));
}

__m128i block_at(std::span<const std::byte> bytes, std::size_t at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(&bytes[at]));
}

// Of at least kStride bytes. Four blocks move on independently of each other, and then become one,
// whose CRC is that of all.
[[gnu::target("pclmul")]] std::uint32_t crc32_by_products(std::span<const std::byte> bytes,
                                                          std::uint32_t before) {
  __m128i streams[kStreams];
  for (std::size_t s = 0; s < kStreams; ++s) streams[s] = block_at(bytes, s * kBlock);
  streams[0] = _mm_xor_si128(streams[0], _mm_cvtsi32_si128(static_cast<int>(~before)));
  std::size_t at = kStride;
  for (; at + kStride <= bytes.size(); at += kStride)
#pragma GCC unroll 4
    for (std::size_t s = 0; s < kStreams; ++s)
      streams[s] = _mm_xor_si128(moved<kStride>(streams[s]), block_at(bytes, at + s * kBlock));
  for (std::size_t s = 1; s < kStreams; ++s)
    streams[s] = _mm_xor_si128(moved<kBlock>(streams[s - 1]), streams[s]);
  std::byte last[kBlock];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(last), streams[kStreams - 1]);
  constexpr std::uint32_t kNothing = 0xFFFFFFFF;  // `before` is in the bytes already
  return crc32_of_zlib(bytes.subspan(at), crc32_of_zlib(last, kNothing));
}

bool has_products() {
  static const bool has = __builtin_cpu_supports("pclmul");
  return has;
}

#endif

}  // namespace

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before) {
  if (bytes.empty()) return before;
#if defined(__x86_64__)
  if (bytes.size() >= kStride && has_products()) return crc32_by_products(bytes, before);
#endif
  return crc32_of_zlib(bytes, before);
}

std::uint32_t joined_crc32(std::uint32_t first, std::uint32_t second, std::uint64_t count) {
  return static_cast<std::uint32_t>(crc32_combine64(first, second, static_cast<z_off64_t>(count)));
}

}  // namespace belfry
