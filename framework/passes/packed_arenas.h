// Lays out the arenas of a plan. Equal arenas are laid out once.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "belfry/framework/plan/schedule.h"

namespace belfry {

// A tensor of an arena, and the launches that touch it, in order.
struct ArenaBlock {
  std::int64_t bytes;
  std::span<const LaunchIndex> uses;
};

struct PackedArena {
  std::vector<std::int64_t> offsets;  // of the blocks
  std::int64_t bytes = 0;             // the end of the last block
};

// Packs arenas (ArenaPacker). Devices with equal towers have equal arenas: blocks of the same
// sizes, whose uses are ordered the same way. Such arenas are packed once.
class PackedArenas {
 public:
  explicit PackedArenas(const ExecutionSchedule& schedule)
      : schedule_(schedule),
        ranks_(schedule.launches.size()),
        numbers_(schedule.strands.size(), -1) {}

  // Puts the blocks in the given order, each at its lowest free offset.
  const PackedArena& pack(std::span<const ArenaBlock> blocks);
  // The number of different arenas so far.
  std::size_t packed() const { return packed_.size(); }

 private:
  // Everything that decides the offsets: the sizes of blocks, the launches that use them, and which
  // of these launches come before which. Launches and strands are numbered in order of appearance.
  using Conflicts = std::vector<std::int64_t>;
  struct HashConflicts {
    std::size_t operator()(const Conflicts& conflicts) const;
  };

  Conflicts conflicts_of(std::span<const ArenaBlock> blocks);
  void append_order(Conflicts& conflicts, std::span<const LaunchIndex> launches);

  const ExecutionSchedule& schedule_;
  std::unordered_map<Conflicts, PackedArena, HashConflicts> packed_;
  Indexed<Launch, int> ranks_;    // scratch: the number of a launch among those that use some block
  Indexed<Strand, int> numbers_;  // scratch: among the strands of these; -1 between calls
};

}  // namespace belfry
