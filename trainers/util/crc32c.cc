#include "belfry/trainers/util/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace belfry {
namespace {

constexpr std::size_t kWord = 8;  // bytes processed at a time

// [i][byte]: the change of the CRC by a byte with i bytes behind it.
using CrcTables = std::array<std::array<std::uint32_t, 256>, kWord>;

constexpr CrcTables crc_tables() {
  CrcTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
    tables[0][byte] = crc;
  }
  for (std::size_t i = 1; i < kWord; ++i)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[i - 1][byte];
      tables[i][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  return tables;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  static_assert(std::endian::native == std::endian::little);
  static constexpr CrcTables kTables = crc_tables();
  std::uint32_t crc = ~0u;
  for (; bytes.size() >= kWord; bytes = bytes.subspan(kWord)) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data(), kWord);
    word ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < kWord; ++i) crc ^= kTables[kWord - 1 - i][(word >> (8 * i)) & 0xff];
  }
  for (const std::byte byte : bytes)
    crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
  return ~crc;
}

std::uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace belfry
