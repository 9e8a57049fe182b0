#include "belfry/allreduce/ring.h"

#include <algorithm>

#include "belfry/allreduce/pieces.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

class Ring final : public Strategy {
 public:
  explicit Ring(int chunks = 1) : chunks_(chunks) {}

  // Of two towers the order is that of the tree, but for which of two NaNs is kept; so it promises
  // nothing for any K.
  bool canonical(int) const override { return false; }
  std::unique_ptr<Strategy> in_chunks(int chunks) const override {
    return std::make_unique<Ring>(chunks);
  }

 private:
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const override {
    return build(grads, false);
  }
  std::vector<std::vector<Output>> mean(const GradientTable& grads) const override {
    return build(grads, true);
  }

  std::vector<std::vector<Output>> build(const GradientTable& grads, bool mean) const {
    NameScope names(grads.graph(), "AllReduceRing");
    std::vector<std::vector<Output>> results(static_cast<std::size_t>(grads.towers()));
    for (int v = 0; v < grads.variables(); ++v) {
      const std::vector<Output> combined = add_variable(grads, v, mean);
      for (std::size_t t = 0; t < results.size(); ++t) results[t].push_back(combined[t]);
    }
    return results;
  }

  std::vector<Output> add_variable(const GradientTable& grads, int v, bool mean) const;
  // One tick of all towers; `segment` says which segment a rank takes, `take` what it makes of its
  // predecessor's piece and its own.
  template <class Segment, class Take>
  void tick(const GradientTable& grads, std::vector<std::vector<Output>>& pieces,
            const Segment& segment, const Take& take) const;

  int chunks_;
};

// pieces[t][i]: tower t's piece i, as it stands; segment s of chunk c is piece s * chunks + c.
std::vector<Output> Ring::add_variable(const GradientTable& grads, int v, bool mean) const {
  const int towers = grads.towers();
  const std::int64_t elements = known_elements(grads, v, "ring all-reduce");
  if (elements == 0) return grads.values(v);  // nothing to add
  const std::vector<std::int64_t> sizes = even_sizes(elements, std::int64_t{chunks_} * towers);
  std::vector<std::vector<Output>> pieces;
  for (int t = 0; t < towers; ++t) {
    DeviceScope on(grads.graph(), grads.device(t));
    pieces.push_back(cut(flat_row(grads.at(t, v).value), sizes));
  }
  for (int now = 0; now < towers - 1; ++now) {
    const bool last = now == towers - 2;
    tick(
        grads, pieces, [&](int rank) { return ring_reduce_segment(rank, towers, now); },
        [&](Output theirs, Output own) {
          const Output total = add_n({theirs, own});
          return last && mean ? total / towers : total;
        });
  }
  for (int now = 0; now < towers - 1; ++now)
    tick(
        grads, pieces, [&](int rank) { return ring_gather_segment(rank, towers, now); },
        [](Output theirs, Output) { return identity(theirs); });
  std::vector<Output> results;
  for (int t = 0; t < towers; ++t) {
    DeviceScope on(grads.graph(), grads.device(t));
    results.push_back(
        reshape(join_flat(pieces[static_cast<std::size_t>(t)]), grads.at(0, v).value.shape()));
  }
  return results;
}

template <class Segment, class Take>
void Ring::tick(const GradientTable& grads, std::vector<std::vector<Output>>& pieces,
                const Segment& segment, const Take& take) const {
  const std::vector<std::vector<Output>> before = pieces;
  const int towers = grads.towers();
  for (int t = 0; t < towers; ++t) {
    DeviceScope on(grads.graph(), grads.device(t));
    for (int c = 0; c < chunks_; ++c) {
      const int rank = ring_rank(t, towers, c, chunks_);
      const auto i = static_cast<std::size_t>(segment(rank) * chunks_ + c);
      if (i >= before[0].size()) continue;  // an empty segment
      const auto from = static_cast<std::size_t>(ring_predecessor(t, towers, c, chunks_));
      const auto to = static_cast<std::size_t>(t);
      pieces[to][i] = take(before[from][i], before[to][i]);
    }
  }
}

const StrategyRegistration ring{"ring", [] { return std::make_unique<Ring>(); }};
const StrategyRegistration xring{"xring", [] { return std::make_unique<Ring>(); },
                                 StrategyName::kAlias};

// How far the order of towers is rotated for a chunk.
int ring_offset(int towers, int chunk, int chunks) {
  return chunk * std::max(1, towers / chunks) % towers;
}

int tower_at(int rank, int towers, int chunk, int chunks) {
  return (rank + ring_offset(towers, chunk, chunks)) % towers;
}

}  // namespace

int ring_rank(int tower, int towers, int chunk, int chunks) {
  return (tower + towers - ring_offset(towers, chunk, chunks)) % towers;
}

int ring_predecessor(int tower, int towers, int chunk, int chunks) {
  return tower_at((ring_rank(tower, towers, chunk, chunks) + towers - 1) % towers, towers, chunk,
                  chunks);
}

int ring_reduce_segment(int rank, int towers, int tick) {
  return (rank + towers - 2 - tick) % towers;
}

int ring_gather_segment(int rank, int towers, int tick) {
  return (rank + towers - 1 - tick) % towers;
}

GradientTable allreduce_ring(const GradientTable& grads, Reduction reduction, At at) {
  return Ring().reduce(grads, {.reduction = reduction}, at);
}

}  // namespace belfry
