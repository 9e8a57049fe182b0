#include "belfry/framework/plan/schedule.h"

#include <algorithm>

#include "belfry/framework/base/sort_unique_impl.h"

namespace belfry {

std::vector<int> gpus_of(const ExecutionSchedule& schedule) {
  std::vector<int> gpus;
  for (const Strand& strand : schedule.strands)
    if (strand.gpu >= 0) gpus.push_back(strand.gpu);
  sort_unique(gpus);
  return gpus;
}

int workers_for(const ExecutionSchedule& schedule, int most) {
  const bool opens =
      std::ranges::any_of(schedule.launches, [](const Launch& l) { return l.parts() > 1; });
  const auto strands = std::ranges::count(schedule.strands, -1, &Strand::gpu);
  return opens ? most : std::clamp(static_cast<int>(strands), 1, most);
}

Indexed<Strand, int> deal_strands(const ExecutionSchedule& schedule, int workers) {
  const std::vector<int> gpus = gpus_of(schedule);
  Indexed<Strand, int> thread_of(schedule.strands.size());
  std::vector<StrandIndex> order;
  for (const StrandIndex s : schedule.strands.indices()) {
    const auto thread = std::ranges::lower_bound(gpus, schedule.strands[s].gpu) - gpus.begin();
    thread_of[s] = workers + static_cast<int>(thread);
    if (!schedule.on_gpu(s)) order.push_back(s);
  }
  std::ranges::sort(order, {}, [&](StrandIndex s) { return schedule.strands[s].device; });
  for (std::size_t i = 0; i < order.size(); ++i)
    thread_of[order[i]] = static_cast<int>(i * at(workers) / order.size());
  return thread_of;
}

}  // namespace belfry
