// Offsets of blocks in one arena.
#pragma once
#include <cstdint>
#include <map>
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
  std::int64_t put(std::int64_t bytes, const std::vector<LaunchIndex>& uses);
  // Where the last block ends.
  std::int64_t end() const { return end_; }

 private:
  // Where blocks of one lifetime lie without a gap.
  struct Span {
    std::int64_t begin, end;
    int lifetime;
  };

  struct Lifetime {
    LaunchIndex first;
    std::vector<LaunchIndex> last = {};  // uses of each strand; the latest of all comes first
    std::vector<char> conflicts = {};    // by number: with its own, and others as far as compared
  };

  int number_of(const std::vector<LaunchIndex>& uses);
  bool conflict(const Lifetime& a, const Lifetime& b) const;
  bool all_before(const Lifetime& a, LaunchIndex launch) const;
  void compare(int number);
  void take(Span span);

  const ExecutionSchedule& schedule_;
  std::map<std::vector<LaunchIndex>, int> numbers_;  // by uses
  std::vector<Lifetime> lifetimes_;
  std::vector<Span> spans_;  // by where they begin
  std::int64_t end_ = 0;
};

}  // namespace belfry
