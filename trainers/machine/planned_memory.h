// Whether this machine has the memory that a benchmark is going to use.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "belfry/framework/base/json.h"
#include "belfry/framework/run/session.h"

namespace belfry {

// The planned peaks of a session's devices, without those that are only declared: bytes.
std::int64_t host_bytes(std::span<const DeviceUse> planned);

// What a run was planned to take of the host's memory, and what the process took.
struct ProcessMemory {
  std::int64_t planned_bytes = 0;          // devices, and batches in flight
  std::int64_t rss_before_plan_bytes = 0;  // of the process, before the model is built
  std::int64_t peak_rss_bytes = 0;         // the most that it had
};

// Adds a member per field.
void set_memory(Json& json, const ProcessMemory& memory);

// "WHAT needs 3.00 GiB of memory, but this machine has 2.00 GiB; ADVICE", or "" if `bytes` are
// available.
std::string memory_refusal(std::string_view what, std::int64_t bytes, std::int64_t available,
                           std::string_view advice);

}  // namespace belfry
