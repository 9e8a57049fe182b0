#include "belfry/framework/passes/packed_arenas.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "belfry/framework/base/sort_unique.h"
#include "belfry/framework/passes/arena_packer.h"

namespace belfry {

const PackedArena& PackedArenas::pack(std::span<const ArenaBlock> blocks) {
  const auto [found, fresh] = packed_.try_emplace(conflicts_of(blocks));
  PackedArena& arena = found->second;
  if (!fresh) return arena;
  ArenaPacker packer(schedule_);
  arena.offsets.reserve(blocks.size());
  for (const ArenaBlock& block : blocks)
    arena.offsets.push_back(packer.put(block.bytes, block.uses));
  arena.bytes = packer.end();
  return arena;
}

PackedArenas::Conflicts PackedArenas::conflicts_of(std::span<const ArenaBlock> blocks) {
  std::vector<LaunchIndex> launches;
  for (const ArenaBlock& block : blocks)
    launches.insert(launches.end(), block.uses.begin(), block.uses.end());
  sort_unique(launches);
  for (std::size_t i = 0; i < launches.size(); ++i) ranks_[launches[i]] = static_cast<int>(i);
  Conflicts conflicts{std::ssize(blocks)};
  for (const ArenaBlock& block : blocks) {
    conflicts.push_back(block.bytes);
    conflicts.push_back(std::ssize(block.uses));
    for (const LaunchIndex use : block.uses) conflicts.push_back(ranks_[use]);
  }
  append_order(conflicts, launches);
  return conflicts;
}

// Appends the strand of each launch, whether it is of the same node as the previous one, and how
// many of `launches` have run on other strands when it starts. These counts are left out if
// the clock of the launch equals that of the previous one on its strand.
void PackedArenas::append_order(Conflicts& conflicts, std::span<const LaunchIndex> launches) {
  struct OnStrand {
    StrandIndex strand;
    Clocks::Clock clock;
    std::vector<int> positions;
  };
  std::vector<OnStrand> strands;
  for (const LaunchIndex l : launches) {
    const Launch& launch = schedule_.launches[l];
    int& number = numbers_[launch.strand];
    if (number < 0) {
      number = static_cast<int>(strands.size());
      strands.push_back({launch.strand, Clocks::kNothing, {}});
    }
    strands[static_cast<std::size_t>(number)].positions.push_back(launch.position);
  }
  NodeIndex previous;
  for (const LaunchIndex l : launches) {
    const Launch& launch = schedule_.launches[l];
    const bool continues = std::exchange(previous, launch.node) == launch.node;
    const int number = numbers_[launch.strand];
    OnStrand& own = strands[static_cast<std::size_t>(number)];
    const bool has_waited = std::exchange(own.clock, launch.clock) != launch.clock;
    conflicts.push_back(4 * number + 2 * continues + has_waited);
    if (!has_waited) continue;
    for (const OnStrand& other : strands) {
      if (&other == &own) continue;
      const int count = schedule_.have_run(other.strand, l);
      const auto& positions = other.positions;
      conflicts.push_back(std::ranges::lower_bound(positions, count) - positions.begin());
    }
  }
  for (const OnStrand& strand : strands) numbers_[strand.strand] = -1;
}

std::size_t PackedArenas::HashConflicts::operator()(const Conflicts& conflicts) const {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(conflicts.data()), conflicts.size() * sizeof(conflicts[0])});
}

}  // namespace belfry
