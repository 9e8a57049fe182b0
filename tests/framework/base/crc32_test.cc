#include "belfry/framework/base/crc32.h"

#include <vector>

#include <gtest/gtest.h>

namespace belfry {
namespace crc32_test {

std::uint32_t crc32_bit_by_bit(std::span<const std::byte> bytes) {
  std::uint32_t state = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ (state & 1 ? 0xEDB88320 : 0);
  }
  return ~state;
}

TEST(Crc32, IsThatOfZlib) {
  EXPECT_EQ(crc32_of(std::as_bytes(std::span("123456789", 9))), 0xcbf43926u);
}

TEST(Crc32, IsRightForBytesOfAnyNumberAndPlace) {
  constexpr std::size_t kMost = 400;
  std::vector<std::byte> bytes(kMost + 16);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i + 7 * i);
  for (std::size_t count = 0; count <= kMost; ++count) {
    const auto some = std::span<const std::byte>(bytes).subspan(count % 16, count);
    EXPECT_EQ(crc32_of(some), crc32_bit_by_bit(some)) << count;
  }
}

TEST(Crc32, IsRightForManyBytes) {
  std::vector<std::byte> bytes((64 << 10) + 14);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i + i / 256);
  const auto some = std::span<const std::byte>(bytes).subspan(1);
  EXPECT_EQ(crc32_of(some), crc32_bit_by_bit(some));
}

TEST(Crc32, ContinuesAndJoins) {
  std::vector<std::byte> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i);
  const std::span<const std::byte> all(bytes);
  for (const std::size_t cut : {0, 1, 63, 64, 500, 990, 1000}) {
    const auto first = all.first(cut), second = all.subspan(cut);
    EXPECT_EQ(crc32_of(second, crc32_of(first)), crc32_of(all)) << cut;
    EXPECT_EQ(joined_crc32(crc32_of(first), crc32_of(second), second.size()), crc32_of(all)) << cut;
  }
}

}  // namespace crc32_test
}  // namespace belfry
