// Whether this machine has the memory that a benchmark is going to use.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "belfry/framework/run/session.h"

namespace belfry {

// The planned peaks of a session's devices, without those that are only declared: bytes.
std::int64_t host_bytes(std::span<const DeviceUse> planned);

// "WHAT needs 3.00 GiB of memory, but this machine has 2.00 GiB; ADVICE", or "" if `bytes` are
// available.
std::string memory_refusal(std::string_view what, std::int64_t bytes, std::int64_t available,
                           std::string_view advice);

}  // namespace belfry
