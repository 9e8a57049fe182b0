#include "belfry/framework/plan/schedule.h"

#include <algorithm>
#include <map>

#include "belfry/framework/base/sort_unique.h"

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
  int strands = 0;
  for (const Strand& strand : schedule.strands)
    if (strand.gpu < 0 && !strand.communicates) strands += strand.shards;
  return opens ? most : std::clamp(strands, 1, most);
}

Indexed<Strand, std::vector<int>> deal_shards(const ExecutionSchedule& schedule, int workers) {
  const std::vector<int> gpus = gpus_of(schedule);
  Indexed<Strand, std::vector<int>> threads_of(schedule.strands.size());
  std::map<int, int> shards_of;                        // by device
  std::map<int, std::vector<StrandIndex>> strands_of;  // of CPUs, by device
  for (const StrandIndex s : schedule.strands.indices()) {
    const Strand& strand = schedule.strands[s];
    const auto thread = std::ranges::lower_bound(gpus, strand.gpu) - gpus.begin();
    threads_of[s].assign(at(strand.shards), workers + static_cast<int>(thread));
    if (schedule.on_gpu(s) || schedule.exchanges(s)) continue;
    strands_of[strand.device].push_back(s);
    int& shards = shards_of[strand.device];
    shards = std::max(shards, strand.shards);
  }
  int all = 0, before = 0;
  for (const auto& [device, shards] : shards_of) all += shards;
  for (const auto& [device, shards] : shards_of) {
    for (const StrandIndex s : strands_of[device])
      for (int shard = 0; shard < schedule.strands[s].shards; ++shard)
        threads_of[s][at(shard)] = (before + shard) * workers / all;
    before += shards;
  }
  return threads_of;
}

Indexed<Strand, int> deal_strands(const ExecutionSchedule& schedule, int workers) {
  Indexed<Strand, int> thread_of;
  for (const std::vector<int>& shards : deal_shards(schedule, workers))
    thread_of.push_back(shards.front());
  return thread_of;
}

}  // namespace belfry
