#include "belfry/trainers/program/memory_report.h"

#include <algorithm>

#include "belfry/framework/plan/plan_graph.h"
#include "belfry/trainers/data/prefetch.h"

namespace belfry {
namespace {

constexpr std::size_t kLargest = 10;

Json kinds_json(const KindBytes& bytes) {
  Json kinds = Json::object();
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    const auto kind = static_cast<MemoryKind>(k);
    kinds.set(std::string(name_of(kind)), bytes[kind]);
  }
  return kinds;
}

}  // namespace

Json memory_json(const MemoryReport& report, std::int64_t batches_held) {
  std::int64_t planned = 0;
  Json devices = Json::array(), tensors = Json::array();
  for (MemoryReport::Device device : report.devices) {
    // GPUs have slots of their own.
    if (!device.device.is_gpu()) device.bytes[MemoryKind::kFeed] *= batches_held;
    planned += device.bytes.total();
    devices.push(Json::object()
                     .set("device", device.device.str())
                     .set("planned_bytes", device.bytes.total())
                     .set("kinds", kinds_json(device.bytes)));
  }
  for (std::size_t i = 0; i < std::min(kLargest, report.tensors.size()); ++i) {
    const PlannedTensor& tensor = report.tensors[i];
    tensors.push(Json::object()
                     .set("name", tensor.name)
                     .set("line", tensor.site.str())
                     .set("kind", name_of(tensor.kind))
                     .set("device", report.devices[at(tensor.device)].device.str())
                     .set("bytes", tensor.bytes));
  }
  return Json::object()
      .set("planned_bytes", planned)
      .set("devices", std::move(devices))
      .set("largest_tensors", std::move(tensors));
}

void write_memory_report(const Session& session, OutputFile& file) {
  file.write(memory_json(session.memory_report(), Prefetcher::kSlots).str(2) + "\n");
}

}  // namespace belfry
