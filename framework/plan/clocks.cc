#include "belfry/framework/plan/clocks.h"

#include <algorithm>

namespace belfry {

Clocks::Clocks(std::size_t strands) : nodes_(1) {
  for (std::size_t reached = kWidth; reached < strands; reached *= kWidth) ++levels_;
}

int Clocks::count(Clock clock, Index<Strand> strand) const {
  for (int level = levels_; level > 0; --level)
    clock = nodes_[static_cast<std::size_t>(clock)][static_cast<std::size_t>(slot(strand, level))];
  return clock;
}

Clocks::Clock Clocks::with(Clock clock, Index<Strand> strand, int count) {
  return this->count(clock, strand) >= count ? clock : with(clock, strand, count, levels_);
}

Clocks::Clock Clocks::with(Clock clock, Index<Strand> strand, int count, int level) {
  if (level == 0) return count;
  Node node = nodes_[static_cast<std::size_t>(clock)];
  int& below = node[static_cast<std::size_t>(slot(strand, level))];
  below = with(below, strand, count, level - 1);
  return add(node);
}

// Returns `a` or `b` itself if it covers the other, so that nothing is stored twice.
Clocks::Clock Clocks::joined(Clock a, Clock b, int level) {
  if (level == 0) return std::max(a, b);
  if (a == b || b == kNothing) return a;
  if (a == kNothing) return b;
  Node node;
  for (std::size_t i = 0; i < kWidth; ++i)
    node[i] = joined(nodes_[static_cast<std::size_t>(a)][i], nodes_[static_cast<std::size_t>(b)][i],
                     level - 1);
  if (node == nodes_[static_cast<std::size_t>(a)]) return a;
  if (node == nodes_[static_cast<std::size_t>(b)]) return b;
  return add(node);
}

Clocks::Clock Clocks::add(const Node& node) {
  nodes_.push_back(node);
  return static_cast<Clock>(nodes_.size()) - 1;
}

}  // namespace belfry
