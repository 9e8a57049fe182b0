#include "belfry/framework/run/memory_use.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/weights.h"

namespace belfry {
namespace {

bool shares_arena(const Plan& plan) { return plan.locks == LockDuration::kWholeRun; }

// Bytes that no other step uses, without fetches.
std::int64_t own_bytes(const Plan& plan, std::size_t device) {
  return plan.kept_bytes[device] + (shares_arena(plan) ? 0 : plan.arena_bytes[device]);
}

}  // namespace

std::vector<std::int64_t> MemoryUse::arena_bytes(std::span<const Plan* const> more) const {
  std::vector<std::int64_t> bytes(devices_.size(), 0);
  const auto add = [&](const Plan& one) {
    if (!shares_arena(one)) return;
    for (std::size_t d = 0; d < bytes.size(); ++d)
      bytes[d] = std::max(bytes[d], one.arena_bytes[d]);
  };
  for (const auto& [key, kept] : steps_.entries()) add(*kept.step->plan());
  for (const Plan* const plan : more) add(*plan);
  return bytes;
}

std::vector<DeviceUse> MemoryUse::of_devices() const {
  std::vector<DeviceUse> use_of;
  for (const auto& device : devices_)
    use_of.push_back({.device = device->spec,
                      .physical_gpu = device->backend ? device->gpu : device->memory_space - 1,
                      .declared = device->declared});
  for (const auto& [node, kept] : variables_.entries()) {
    DeviceUse& use = use_of[at(kept.device)];
    ++use.variables;
    use.variable_bytes += kept.bytes;
    use.bytes += kept.bytes;
  }
  const std::vector<std::int64_t> arenas = arena_bytes();
  for (std::size_t d = 0; d < use_of.size(); ++d) use_of[d].bytes += arenas[d];
  for (const auto& [key, kept] : steps_.entries()) {
    const std::shared_ptr<const Plan> plan = kept.step->plan();
    for (std::size_t d = 0; d < use_of.size(); ++d)
      use_of[d].bytes += own_bytes(*plan, d) + plan->fetch_bytes[d];
  }
  for (std::size_t d = 0; d < use_of.size(); ++d)
    use_of[d].peak_bytes = std::max(peak_bytes_[d], use_of[d].bytes);
  return use_of;
}

MemoryReport MemoryUse::by_kind() const {
  MemoryReport report;
  for (const auto& device : devices_) report.devices.push_back({device->spec, {}});
  std::optional<VariableRoles> roles;
  for (const auto& [node, kept] : variables_.entries()) {
    if (kept.owner) continue;
    if (!roles) roles.emplace(node->graph());
    const bool is_weight = roles->of(*node) == VariableRole::kWeight;
    const MemoryKind kind = is_weight ? MemoryKind::kWeight : MemoryKind::kOptimizer;
    report.devices[at(kept.device)].bytes[kind] += kept.bytes;
    report.tensors.push_back(
        {std::string(node->name()), node->origin().site, kind, kept.device, kept.bytes});
  }
  add_steps(report);
  std::ranges::stable_sort(report.tensors, [](const PlannedTensor& a, const PlannedTensor& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.name < b.name;
  });
  return report;
}

void MemoryUse::add_steps(MemoryReport& report) const {
  const std::vector<std::int64_t> shared = arena_bytes();
  std::vector<bool> is_told(devices_.size(), false);  // its shared arena has been reported by kind
  std::map<std::pair<int, int>, PlannedTensor> feeds;
  for (const auto& [key, kept] : steps_.entries()) {
    const std::shared_ptr<const Plan> plan = kept.step->plan();
    PlanMemory memory = memory_of(*plan);
    std::vector<bool> counts(devices_.size());  // whether the arena of this step counts
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const bool shares = shares_arena(*plan);
      counts[d] = !shares || (!is_told[d] && plan->arena_bytes[d] == shared[d]);
      is_told[d] = is_told[d] || (shares && counts[d]);
      if (counts[d]) report.devices[d].bytes.add(memory.arenas[d]);
      report.devices[d].bytes.add(memory.others[d]);
    }
    for (PlannedTensor& tensor : memory.tensors)
      if (counts[at(tensor.device)] || tensor.kind == MemoryKind::kFeed ||
          tensor.kind == MemoryKind::kFetch)
        report.tensors.push_back(std::move(tensor));
    for (PlanMemory::Feed& feed : memory.feeds) {
      const auto [largest, fresh] = feeds.try_emplace(feed.where.key(), feed.tensor);
      if (!fresh && feed.tensor.bytes > largest->second.bytes) largest->second = feed.tensor;
    }
  }
  for (auto& [where, tensor] : feeds) {
    MemoryReport::Device& device = report.devices[at(tensor.device)];
    device.bytes[MemoryKind::kFeed] += tensor.bytes;
    device.fed_bytes += tensor.bytes;
    report.tensors.push_back(std::move(tensor));
  }
}

void MemoryUse::note_peak() {
  const std::vector<DeviceUse> use_of = of_devices();
  for (std::size_t d = 0; d < use_of.size(); ++d) peak_bytes_[d] = use_of[d].peak_bytes;
}

std::string MemoryUse::lacking(const Plan& plan, bool counts_fetches) const {
  std::vector<DeviceUse> all = of_devices();
  const Plan* const more[] = {&plan};
  const std::vector<std::int64_t> arenas = arena_bytes(), larger = arena_bytes(more);
  for (std::size_t d = 0; d < all.size(); ++d)
    all[d].bytes +=
        larger[d] - arenas[d] + own_bytes(plan, d) + (counts_fetches ? plan.fetch_bytes[d] : 0);
  for (const PlanNode& planned : plan.nodes)
    if (planned.is_variable() && !variables_.find(*planned.node) &&
        !plan.shares.contains(planned.node))
      all[at(planned.device())].bytes += planned.types[0].bytes();
  for (std::size_t d = 0; d < all.size(); ++d) {
    const std::int64_t limit = devices_[d]->memory.limit();
    if (limit != 0 && all[d].bytes > limit)
      return cat(all[d].device, ": its plans need ", all[d].bytes, " bytes, of which ",
                 plan.arena_bytes[d], " for this one's arena",
                 counts_fetches && plan.fetch_bytes[d] > 0
                     ? cat(" and ", plan.fetch_bytes[d], " for its fetches")
                     : "",
                 ", but its limit is ", limit, "; use a smaller batch or more devices");
  }
  return {};
}

}  // namespace belfry
