#include "belfry/trainers/machine/planned_memory.h"

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"

namespace belfry {

std::int64_t host_bytes(std::span<const DeviceUse> planned) {
  std::int64_t bytes = 0;
  for (const DeviceUse& use : planned)
    if (!use.declared) bytes += use.peak_bytes;
  return bytes;
}

void set_memory(Json& json, const ProcessMemory& memory) {
  json.set("planned_bytes", memory.planned_bytes)
      .set("rss_before_plan_bytes", memory.rss_before_plan_bytes)
      .set("peak_rss_bytes", memory.peak_rss_bytes);
}

std::string memory_refusal(std::string_view what, std::int64_t bytes, std::int64_t available,
                           std::string_view advice) {
  if (bytes <= available) return "";
  return cat(what, " needs ", byte_text(bytes), " of memory, but this machine has ",
             byte_text(available), "; ", advice);
}

}  // namespace belfry
