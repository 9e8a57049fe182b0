// Offsets of blocks in one arena.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "belfry/framework/plan/schedule.h"

namespace belfry {

// Two blocks may overlap only if every use of one comes before all launches of the node that writes
// the other. Blocks with the same uses never overlap, so the packer treats them as one lifetime.
class ArenaPacker {
 public:
  explicit ArenaPacker(const ExecutionSchedule& schedule) : schedule_(schedule) {}

  // The lowest free offset for a block: `uses` are the launches that touch it, in order. Packing
  // takes time in proportion to the blocks: after very many of them, most searches begin near the
  // last block of the same size, and may miss a lower offset.
  std::int64_t put(std::int64_t bytes, std::span<const LaunchIndex> uses);
  // The end of the last block.
  std::int64_t end() const { return end_; }

 private:
  struct Lifetime {
    LaunchIndex first, last_writer;      // launches of the node that writes it
    std::vector<LaunchIndex> last = {};  // by strand; the latest of all comes first
  };

  // A range without a gap, filled by blocks of one lifetime.
  struct Span {
    std::int64_t begin, end;
    int lifetime;
  };

  // Neighbouring spans, in order of offset. The arena of a host may hold small tensors of every
  // tower, all in use at once. A search skips such tensors run by run.
  struct Run {
    std::vector<Span> spans;
    std::int64_t end = 0;      // of all spans
    std::int64_t gap = 0;      // the largest between them
    LaunchIndex latest_first;  // of their lifetimes
    LaunchIndex earliest_last;
  };

  int number_of(std::span<const LaunchIndex> uses);
  bool conflict(const Lifetime& a, const Lifetime& b) const;
  // Whether all uses of `a` come before `b` is written.
  bool all_before(const Lifetime& a, const Lifetime& b) const;
  std::int64_t begin_of_search(std::int64_t bytes) const;
  std::int64_t free_offset(std::int64_t bytes, const Lifetime& own, std::int64_t begin);
  void take(Span span);
  void sum_up(Run& run) const;

  const ExecutionSchedule& schedule_;
  std::map<std::vector<LaunchIndex>, int> numbers_;  // by uses
  std::vector<Lifetime> lifetimes_;
  std::vector<Run> runs_;                      // in order
  std::map<std::int64_t, std::int64_t> last_;  // by bytes: the offset of the last such block
  // Spans that searches may look at before they must begin near the last block. Each block adds
  // some.
  std::int64_t credit_ = std::int64_t{1} << 22;
  std::int64_t end_ = 0;
};

}  // namespace belfry
