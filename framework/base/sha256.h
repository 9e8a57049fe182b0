// SHA-256 (FIPS 180-4), and HMAC-SHA-256 (RFC 2104), by which processes prove that they know a
// secret. Small enough that Belfry needs no library of cryptography for it.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace belfry {

using Sha256 = std::array<std::uint8_t, 32>;

// The digest of any bytes.
Sha256 sha256(std::string_view bytes);

// The digest of bytes that only somebody who knows the key can make.
Sha256 hmac_sha256(std::string_view key, std::string_view bytes);

// The bytes of a digest as text, for messages between processes.
std::string bytes_of(const Sha256& digest);

// Takes the same time wherever the texts differ, so a stranger learns nothing by trying.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace belfry
