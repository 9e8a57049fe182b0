#include "belfry/framework/base/crc32.h"

#include <libdeflate.h>
#include <zlib.h>

namespace belfry {

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before) {
  if (bytes.empty()) return before;  // without memory, libdeflate starts anew
  return libdeflate_crc32(before, bytes.data(), bytes.size());
}

std::uint32_t joined_crc32(std::uint32_t first, std::uint32_t second, std::uint64_t count) {
  return static_cast<std::uint32_t>(crc32_combine64(first, second, static_cast<z_off64_t>(count)));
}

}  // namespace belfry
