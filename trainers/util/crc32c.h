// The checksum of TFRecord files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace belfry {

// The CRC of Castagnoli, as in RFC 3720.
std::uint32_t crc32c(std::span<const std::byte> bytes);

// The masked form that TFRecord files keep. They mask it because the CRC of data that contain their
// own CRC detects little.
std::uint32_t masked_crc32c(std::span<const std::byte> bytes);
inline std::uint32_t masked_crc32c(std::string_view text) {
  return masked_crc32c(std::as_bytes(std::span(text)));
}

}  // namespace belfry
