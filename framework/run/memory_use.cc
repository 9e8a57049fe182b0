#include "belfry/framework/run/memory_use.h"

#include <algorithm>
#include <iterator>

#include "belfry/framework/base/text.h"

namespace belfry {

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
  for (const auto& [key, kept] : steps_.entries()) {
    const std::shared_ptr<const Plan> plan = kept.step->plan();
    for (std::size_t d = 0; d < use_of.size(); ++d)
      use_of[d].bytes += plan->arena_bytes[d] + plan->fetch_bytes[d];
  }
  for (std::size_t d = 0; d < use_of.size(); ++d)
    use_of[d].peak_bytes = std::max(peak_bytes_[d], use_of[d].bytes);
  return use_of;
}

MemoryReport MemoryUse::by_kind() const {
  MemoryReport report;
  for (const auto& device : devices_) report.devices.push_back({device->spec, {}});
  for (const auto& [node, kept] : variables_.entries()) {
    if (kept.owner) continue;
    const MemoryKind kind =
        node->variable().trainable ? MemoryKind::kWeight : MemoryKind::kOptimizer;
    report.devices[at(kept.device)].bytes[kind] += kept.bytes;
    report.tensors.push_back(
        {std::string(node->name()), node->origin().site, kind, kept.device, kept.bytes});
  }
  for (const auto& [key, kept] : steps_.entries()) {
    PlanMemory memory = memory_of(*kept.step->plan());
    for (std::size_t d = 0; d < devices_.size(); ++d)
      report.devices[d].bytes.add(memory.devices[d]);
    std::ranges::move(memory.tensors, std::back_inserter(report.tensors));
  }
  std::ranges::stable_sort(report.tensors, [](const PlannedTensor& a, const PlannedTensor& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.name < b.name;
  });
  return report;
}

void MemoryUse::note_peak() {
  const std::vector<DeviceUse> use_of = of_devices();
  for (std::size_t d = 0; d < use_of.size(); ++d) peak_bytes_[d] = use_of[d].peak_bytes;
}

std::string MemoryUse::lacking(const Plan& plan, bool counts_fetches) const {
  std::vector<DeviceUse> all = of_devices();
  for (std::size_t d = 0; d < all.size(); ++d)
    all[d].bytes += plan.arena_bytes[d] + (counts_fetches ? plan.fetch_bytes[d] : 0);
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
