#include "belfry/trainers/util/crc32c.h"

#include <string>

#include <gtest/gtest.h>

namespace belfry {
namespace crc32c_test {

// The values come from the package crc32c; the second is the example of RFC 3720.
TEST(Crc32c, IsCastagnolis) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(all))), 0x9c44184b);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(std::string_view("123456789")))), 0xe3069283);
  EXPECT_EQ(crc32c({}), 0u);
}

// Computes the CRC by its definition, bit by bit.
std::uint32_t slow_crc(std::string_view text) {
  std::uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  return ~crc;
}

TEST(Crc32c, OfAnyLengthIsWhatTheDefinitionSays) {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(crc32c(std::as_bytes(std::span(text))), slow_crc(text)) << i;
    text += static_cast<char>(37 * i + 11);
  }
}

}  // namespace crc32c_test
}  // namespace belfry
