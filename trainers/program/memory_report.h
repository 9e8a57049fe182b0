// What --memory_report writes.
#pragma once
#include <cstdint>

#include "belfry/framework/base/json.h"
#include "belfry/framework/plan/memory_kinds.h"
#include "belfry/framework/run/session.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {

// {"planned_bytes", "devices": [{"device", "planned_bytes", "kinds": {"weights": ..}}],
// "largest_tensors": [{"name", "line", "kind", "device", "bytes"}]}: ten tensors, the largest
// first. Bytes of a device are the sum of its kinds, whose meaning memory_kinds.h states. Feeds
// count `batches_held` times, as so many batches are in memory.
Json memory_json(const MemoryReport& report, std::int64_t batches_held);

// Of a training program: the batches are those of the Prefetcher.
void write_memory_report(const Session& session, OutputFile& file);

}  // namespace belfry
