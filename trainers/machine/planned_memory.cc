#include "belfry/trainers/machine/planned_memory.h"

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/graph.h"

namespace belfry {

std::int64_t host_bytes(std::span<const DeviceUse> planned) {
  std::int64_t bytes = 0;
  for (const DeviceUse& use : planned)
    if (!use.declared) bytes += use.peak_bytes;
  return bytes;
}

std::int64_t bytes_of_snapshot(const Graph& graph) {
  std::int64_t bytes = 0;
  for (const Variable variable : originals_of(graph.variables(kGlobalVariables)))
    bytes += TensorType{variable.whole_shape(), variable.dtype()}.bytes();
  return bytes;
}

KindBytes planned_bytes(const MemoryReport::Device& device, const HeldMemory& held) {
  KindBytes bytes = device.bytes;
  bytes[MemoryKind::kFeed] += (held.batches - 1) * device.fed_bytes;
  return bytes;
}

std::int64_t planned_bytes(const MemoryReport& report, const HeldMemory& held) {
  std::int64_t bytes = held.data + held.saved;
  for (const MemoryReport::Device& device : report.devices)
    bytes += planned_bytes(device, held).total();
  return bytes;
}

std::int64_t host_bytes(const MemoryReport& report, const HeldMemory& held) {
  MemoryReport of_host;
  for (const MemoryReport::Device& device : report.devices)
    if (!device.device.is_gpu()) of_host.devices.push_back(device);
  return planned_bytes(of_host, held);
}

void set_memory(JsonValue& json, const ProcessMemory& memory) {
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
