// Offsets of blocks in one arena.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "belfry/framework/plan/schedule.h"

namespace belfry {

// Two blocks may overlap only if every use of one happens before the first of the other, which
// writes it. Blocks with the same uses never may: they are looked at together.
class ArenaPacker {
 public:
  explicit ArenaPacker(const ExecutionSchedule& schedule) : schedule_(schedule) {}

  // The lowest offset that is free for a block: `uses` are the launches that touch it, in order.
  std::int64_t put(std::int64_t bytes, std::span<const LaunchIndex> uses);
  // Where the last block ends.
  std::int64_t end() const { return end_; }

 private:
  struct Lifetime {
    LaunchIndex first;
    std::vector<LaunchIndex> last = {};  // uses of each strand; the latest of all comes first
  };

  // Where blocks of one lifetime lie without a gap.
  struct Span {
    std::int64_t begin, end;
    int lifetime;
  };

  // Spans that follow each other, by where they begin. The arena of a host may hold small tensors
  // of every tower, all used at one time: a block passes over those run by run.
  struct Run {
    std::vector<Span> spans;
    std::int64_t end = 0;      // of all spans
    std::int64_t gap = 0;      // the largest between them
    LaunchIndex latest_first;  // of their lifetimes
    LaunchIndex earliest_last;
  };

  int number_of(std::span<const LaunchIndex> uses);
  bool conflict(const Lifetime& a, const Lifetime& b) const;
  bool all_before(const Lifetime& a, LaunchIndex launch) const;
  std::int64_t free_offset(std::int64_t bytes, const Lifetime& own) const;
  void take(Span span);
  void sum_up(Run& run) const;

  const ExecutionSchedule& schedule_;
  std::map<std::vector<LaunchIndex>, int> numbers_;  // by uses
  std::vector<Lifetime> lifetimes_;
  std::vector<Run> runs_;  // in order
  std::int64_t end_ = 0;
};

}  // namespace belfry
