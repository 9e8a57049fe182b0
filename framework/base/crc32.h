// The CRC-32 of zlib, by which files find that they were damaged.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace belfry {

// Of bytes that follow others with the CRC `before`. As fast as memory where the processor
// multiplies without carry.
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before = 0);
// The CRC of bytes with the CRC `first`, followed by `count` bytes with the CRC `second`.
std::uint32_t joined_crc32(std::uint32_t first, std::uint32_t second, std::uint64_t count);

}  // namespace belfry
