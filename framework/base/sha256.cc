#include "belfry/framework/base/sha256.h"

#include <bit>

namespace belfry {
namespace {

constexpr std::size_t kShaBlock = 64;  // bytes

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr std::uint32_t kShaRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using ShaState = std::array<std::uint32_t, 8>;

// The 64 words that a block is stretched to.
std::array<std::uint32_t, 64> stretched(const char* block) {
  std::array<std::uint32_t, 64> words;
  for (std::size_t i = 0; i < kShaBlock; i += 4) {
    const auto byte = [&](std::size_t k) {
      return std::uint32_t{static_cast<std::uint8_t>(block[i + k])};
    };
    words[i / 4] = byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
  }
  for (std::size_t i = 16; i < words.size(); ++i) {
    const std::uint32_t a = words[i - 15], b = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + words[i - 7] +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  return words;
}

void add_block(ShaState& state, const char* block) {
  const std::array<std::uint32_t, 64> words = stretched(block);
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint32_t t = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                            ((e & f) ^ (~e & g)) + kShaRounds[i] + words[i];
    const std::uint32_t u =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t, d = c, c = b, b = a, a = t + u;
  }
  const ShaState turned = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += turned[i];
}

// The padding after the last whole block: the other bytes, a bit, zeros, and the number of all
// bits.
std::string padded_end(std::string_view bytes) {
  std::string end(bytes.substr(bytes.size() / kShaBlock * kShaBlock));
  end += '\x80';
  while (end.size() % kShaBlock != kShaBlock - sizeof(std::uint64_t)) end += '\0';
  const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) end += static_cast<char>(bits >> shift & 0xff);
  return end;
}

}  // namespace

Sha256 sha256(std::string_view bytes) {
  // The first 32 bits of the fractions of the square roots of the first 8 primes.
  ShaState state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  for (std::size_t at = 0; at + kShaBlock <= bytes.size(); at += kShaBlock)
    add_block(state, bytes.data() + at);
  const std::string end = padded_end(bytes);
  for (std::size_t at = 0; at < end.size(); at += kShaBlock) add_block(state, end.data() + at);
  Sha256 digest;
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<std::uint8_t>(state[i / 4] >> (24 - i % 4 * 8));
  return digest;
}

Sha256 hmac_sha256(std::string_view key, std::string_view bytes) {
  std::string padded = key.size() > kShaBlock ? bytes_of(sha256(key)) : std::string(key);
  padded.resize(kShaBlock, '\0');
  std::string inner, outer;
  for (const char c : padded) {
    inner += static_cast<char>(c ^ 0x36);
    outer += static_cast<char>(c ^ 0x5c);
  }
  return sha256(outer + bytes_of(sha256(inner.append(bytes))));
}

std::string bytes_of(const Sha256& digest) { return {digest.begin(), digest.end()}; }

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  int differ = 0;
  for (std::size_t i = 0; i < a.size(); ++i) differ |= a[i] ^ b[i];
  return differ == 0;
}

}  // namespace belfry
