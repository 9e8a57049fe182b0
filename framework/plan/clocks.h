// Vector clocks over the strands of a schedule.
#pragma once
#include <array>
#include <vector>

#include "belfry/framework/base/index.h"

namespace belfry {

struct Strand;

// A clock says how many launches of each strand have run. A step has as many clocks as launches,
// and a few strands per device. Most clocks differ from an earlier one in a few strands only.
// So a clock is a tree of immutable nodes, and equal parts of clocks share nodes.
class Clocks {
 public:
  using Clock = int;  // the number of its root: nodes made later have higher numbers
  static constexpr Clock kNothing = 0;  // no launch has run

  // `strands`: the most strands that clocks have.
  explicit Clocks(std::size_t strands = 0);

  int count(Clock clock, Index<Strand> strand) const;
  // `clock` with at least `count` launches of the strand.
  Clock with(Clock clock, Index<Strand> strand, int count);
  // The clock of all launches that have run by `a` or by `b`.
  Clock joined(Clock a, Clock b) { return joined(a, b, levels_); }

 private:
  static constexpr int kBits = 4, kWidth = 1 << kBits;
  // A leaf holds counts, any other node holds nodes. Node 0 is empty, and so is everything below
  // it.
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
