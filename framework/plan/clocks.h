// Vector clocks over the strands of a schedule.
#pragma once
#include <array>
#include <vector>

#include "belfry/framework/base/index.h"

namespace belfry {

struct Strand;

// A clock says how many launches of each strand have run. A step has as many clocks as launches,
// and up to three strands per device; but most clocks differ from an earlier one in a few strands.
// So a clock is a tree whose nodes never change, and clocks share those in which they are equal.
class Clocks {
 public:
  using Clock = int;                    // its root, by number: nodes made later have higher ones
  static constexpr Clock kNothing = 0;  // no launch has run

  // For at most so many strands.
  explicit Clocks(std::size_t strands = 0);

  int count(Clock clock, Index<Strand> strand) const;
  // `clock` with at least `count` launches of the strand.
  Clock with(Clock clock, Index<Strand> strand, int count);
  // What either says has run.
  Clock joined(Clock a, Clock b) { return joined(a, b, levels_); }

 private:
  static constexpr int kBits = 4, kWidth = 1 << kBits;
  // Counts in leaves, else nodes. Node 0 is empty, and all below it.
  using Node = std::array<int, kWidth>;

  static int slot(Index<Strand> strand, int level) {
    return strand.value() >> (kBits * (level - 1)) & (kWidth - 1);
  }
  Clock with(Clock clock, Index<Strand> strand, int count, int level);
  Clock joined(Clock a, Clock b, int level);
  Clock add(const Node& node);

  int levels_ = 1;
  std::vector<Node> nodes_;
};

}  // namespace belfry
