// The planned use of the host's memory, and whether this machine has it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "belfry/framework/base/json.h"
#include "belfry/framework/plan/memory_kinds.h"
#include "belfry/framework/run/session.h"
#include "belfry/trainers/data/prefetch.h"

namespace belfry {

// The sum of the planned peaks of a session's devices, in bytes, without those that are only
// declared.
std::int64_t host_bytes(std::span<const DeviceUse> planned);

// Memory that a training program holds besides its session's plan.
struct HeldMemory {
  std::int64_t batches = Prefetcher::kSlots;  // in flight
  std::int64_t data = 0;   // bytes of generated samples; samples of files do not count
  std::int64_t saved = 0;  // bytes of the copy of variables for writing a checkpoint
  // Bytes of saves in memory, which are files, so that they count for no process.
  std::int64_t kept = 0;
};

// The bytes of a copy of all variables, as a checkpoint has them.
std::int64_t bytes_of_snapshot(const Graph& graph);

// The bytes of one device. Its feeds count once per batch in flight.
KindBytes planned_bytes(const MemoryReport::Device& device, const HeldMemory& held);
// The bytes of all devices, and of `held`.
std::int64_t planned_bytes(const MemoryReport& report, const HeldMemory& held);
// The same without GPUs, whose memory is not the host's.
std::int64_t host_bytes(const MemoryReport& report, const HeldMemory& held);

// The planned memory of a run, and the host's memory that the process took.
struct ProcessMemory {
  std::int64_t planned_bytes = 0;          // planned_bytes(): of all devices, GPUs among them
  std::int64_t rss_before_plan_bytes = 0;  // of the process, before the model is built
  std::int64_t peak_rss_bytes = 0;         // the most that it had
};

// Adds a member per field.
void set_memory(JsonValue& json, const ProcessMemory& memory);

// "WHAT needs 3.00 GiB of memory, but this machine has 2.00 GiB; ADVICE", or "" if `bytes` are
// available.
std::string memory_refusal(std::string_view what, std::int64_t bytes, std::int64_t available,
                           std::string_view advice);

}  // namespace belfry
