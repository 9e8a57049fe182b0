#include "belfry/trainers/program/memory_report.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/plan/plan_graph.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

constexpr std::size_t kLargest = 10;

JsonValue kinds_json(const KindBytes& bytes) {
  JsonValue kinds = JsonValue::object();
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    const auto kind = static_cast<MemoryKind>(k);
    kinds.set(std::string(name_of(kind)), bytes[kind]);
  }
  return kinds;
}

// "activations 26.00 MiB, weights 1.60 MiB": the largest first.
std::string largest_kinds(const KindBytes& bytes) {
  constexpr std::int64_t kLeastShare = 100;
  std::vector<std::pair<std::int64_t, std::string_view>> kinds;
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    const auto kind = static_cast<MemoryKind>(k);
    if (bytes[kind] > bytes.total() / kLeastShare) kinds.emplace_back(bytes[kind], name_of(kind));
  }
  std::ranges::stable_sort(kinds, std::greater(), [](const auto& kind) { return kind.first; });
  std::vector<std::string> texts;
  for (const auto& [of_kind, name] : kinds) texts.push_back(cat(name, " ", byte_text(of_kind)));
  return join(texts);
}

}  // namespace

JsonValue memory_json(const MemoryReport& report, const HeldMemory& held) {
  JsonValue devices = JsonValue::array(), tensors = JsonValue::array();
  for (const MemoryReport::Device& device : report.devices) {
    const KindBytes bytes = planned_bytes(device, held);
    devices.push(JsonValue::object()
                     .set("device", device.device.str())
                     .set("planned_bytes", bytes.total())
                     .set("kinds", kinds_json(bytes)));
  }
  for (std::size_t i = 0; i < std::min(kLargest, report.tensors.size()); ++i) {
    const PlannedTensor& tensor = report.tensors[i];
    tensors.push(JsonValue::object()
                     .set("name", tensor.name)
                     .set("line", tensor.site.str())
                     .set("kind", name_of(tensor.kind))
                     .set("device", report.devices[at(tensor.device)].device.str())
                     .set("bytes", tensor.bytes));
  }
  return JsonValue::object()
      .set("planned_bytes", planned_bytes(report, held))
      .set("devices", std::move(devices))
      .set("saved_copy_bytes", held.saved)
      .set("memory_saves_bytes", held.kept)
      .set("data_bytes", held.data)
      .set("largest_tensors", std::move(tensors));
}

void write_memory_report(const Session& session, int copies, OutputFile& file) {
  file.write(memory_json(session.memory_report(), held_memory(session.graph(), copies)).str(2) +
             "\n");
}

HeldMemory held_memory(const Graph& graph, int copies) {
  const std::int64_t bytes = bytes_of_snapshot(graph);
  // One is written to disk, and one into memory.
  return {.saved = std::min(copies, 2) * bytes, .kept = std::max(copies - 1, 0) * bytes};
}

std::string memory_saves_line(const HeldMemory& held) {
  return held.kept > 0 ? cat("saves in memory: ", byte_text(held.kept), " in /dev/shm on each host")
                       : "";
}

std::string memory_line(const MemoryReport& report, const HeldMemory& held) {
  struct Entry {
    std::string text;
    std::vector<DeviceSpec> devices;
  };
  std::vector<Entry> entries;
  for (const MemoryReport::Device& device : report.devices) {
    const KindBytes bytes = planned_bytes(device, held);
    if (bytes.total() == 0) continue;
    std::string text = cat(byte_text(bytes.total()), " (", largest_kinds(bytes), ")");
    if (entries.empty() || entries.back().text != text) entries.push_back({std::move(text), {}});
    entries.back().devices.push_back(device.device);
  }
  std::vector<std::string> parts;
  for (const Entry& entry : entries)
    parts.push_back(
        cat(short_names(entry.devices), entry.devices.size() > 1 ? " each " : " ", entry.text));
  if (held.saved > 0)
    parts.push_back(cat(held.kept > 0 ? "copies" : "a copy", " to save ", byte_text(held.saved)));
  if (held.kept > 0) parts.push_back(memory_saves_line(held));
  const std::string planned = cat("memory: ", byte_text(planned_bytes(report, held)), " planned");
  return parts.empty() ? planned : cat(planned, "\n  ", join(parts, "\n  "));
}

void TellMemory::check(Trainer& trainer) const {
  const std::int64_t bytes =
      host_bytes(trainer.session().memory_report(), held_memory(trainer.graph(), copies_));
  const bool evaluates = trainer.built().options().evaluates_only;
  const std::string refusal =
      memory_refusal(evaluates ? "the evaluation" : "training", bytes, limit_.bytes, limit_.advice);
  const bool plans = trainer.built().options().session.dry_run;  // maybe for another machine
  require<OutOfMemory>(refusal.empty() || plans, refusal);
  if (!refusal.empty()) log_warning(refusal);
}

void TellMemory::setup(Trainer& trainer) {
  if (trainer.built().options().evaluates_only) check(trainer);  // the evaluation is planned now
  console_.line(
      memory_line(trainer.session().memory_report(), held_memory(trainer.graph(), copies_)));
}

}  // namespace belfry
