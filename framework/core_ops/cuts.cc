#include "belfry/framework/core_ops/cuts.h"

#include <algorithm>

namespace belfry {
namespace {

constexpr std::int64_t kCutUnit = 16;  // elements: a cache line of f32

}  // namespace

Cuts one_piece(std::int64_t elements) { return {0, elements}; }

std::int64_t even_unit(int size) { return kCutUnit * size; }

Cuts even_cuts(std::int64_t elements, int size) {
  const std::int64_t units = (elements + kCutUnit - 1) / kCutUnit;
  Cuts cuts;
  for (int r = 0; r <= size; ++r) cuts.push_back(std::min(elements, units * r / size * kCutUnit));
  return cuts;
}

std::vector<std::int64_t> piece_sizes(const Cuts& cuts) {
  std::vector<std::int64_t> sizes;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) sizes.push_back(cuts[r + 1] - cuts[r]);
  return sizes;
}

WorkRange piece_of(const Cuts& cuts, int rank) {
  const auto r = cuts.size() == 2 ? 0 : static_cast<std::size_t>(rank);
  return {cuts[r], cuts[r + 1]};
}

}  // namespace belfry
