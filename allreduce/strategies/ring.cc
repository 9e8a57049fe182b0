#include "belfry/allreduce/strategies/ring.h"

#include <algorithm>

#include "belfry/allreduce/pieces.h"
#include "belfry/allreduce/sums_over_processes.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

bool of_one_type(const GradientTable& grads) {
  for (int v = 1; v < grads.variables(); ++v)
    if (grads.at(0, v).value.dtype() != grads.at(0, 0).value.dtype()) return false;
  return true;
}

class Ring final : public CombiningStrategy {
 public:
  explicit Ring(int chunks = 1) : chunks_(chunks) {}

  // Sums of two towers have the order of the tree, except that another of two NaNs is kept. So this
  // promises nothing for any K.
  bool canonical(int) const override { return false; }
  std::string refusal_of_processes(const std::vector<DeviceSpec>&) const override { return ""; }
  std::unique_ptr<Strategy> in_chunks(int chunks) const override {
    return std::make_unique<Ring>(chunks);
  }

 private:
  std::vector<std::vector<Output>> combine(const GradientTable& grads,
                                           Reduction reduction) const override {
    if (grads.graph().process().size > 1)  // a bucket travels as one row
      return sums_over_processes(grads, reduction == Reduction::kMean, of_one_type(grads),
                                 ProcessSum::kRing);
    NameScope names(grads.graph(), "AllReduceRing");
    return by_variable(grads, [&](int v) { return add_variable(grads, v, reduction); });
  }

  std::vector<Output> add_variable(const GradientTable& grads, int v, Reduction reduction) const;
  // One tick of all towers. `fragment` gives the fragment that a rank takes. `take` combines its
  // predecessor's piece with its own.
  template <class Fragment, class Take>
  void tick(const GradientTable& grads, std::vector<std::vector<Output>>& pieces,
            const Fragment& fragment, const Take& take) const;

  int chunks_;
};

// pieces[t][i]: tower t's present piece i. Fragment s of chunk c is piece s * chunks + c.
std::vector<Output> Ring::add_variable(const GradientTable& grads, int v,
                                       Reduction reduction) const {
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
        grads, pieces, [&](int rank) { return ring_reduce_fragment(rank, towers, now); },
        [&](Output theirs, Output own) {
          const Output total = add_n({theirs, own});
          return last && reduction == Reduction::kMean ? total / towers : total;
        });
  }
  for (int now = 0; now < towers - 1; ++now)
    tick(
        grads, pieces, [&](int rank) { return ring_gather_fragment(rank, towers, now); },
        [](Output theirs, Output) { return identity(theirs); });
  std::vector<Output> results;
  for (int t = 0; t < towers; ++t) {
    DeviceScope on(grads.graph(), grads.device(t));
    results.push_back(
        reshape(join_flat(pieces[static_cast<std::size_t>(t)]), grads.at(0, v).value.shape()));
  }
  return results;
}

template <class Fragment, class Take>
void Ring::tick(const GradientTable& grads, std::vector<std::vector<Output>>& pieces,
                const Fragment& fragment, const Take& take) const {
  const std::vector<std::vector<Output>> before = pieces;
  const int towers = grads.towers();
  for (int t = 0; t < towers; ++t) {
    const auto from = static_cast<std::size_t>(ring_predecessor(t, towers));
    const auto to = static_cast<std::size_t>(t);
    DeviceScope on(grads.graph(), grads.device(t));
    for (int c = 0; c < chunks_; ++c) {
      const int rank = ring_rank(t, towers, c, chunks_);
      const auto i = static_cast<std::size_t>(fragment(rank) * chunks_ + c);
      if (i >= before[0].size()) continue;  // an empty fragment
      pieces[to][i] = take(before[from][i], before[to][i]);
    }
  }
}

const StrategyRegistration ring{"ring", [] { return std::make_unique<Ring>(); }};
const StrategyAlias xring{"xring", "ring"};

}  // namespace

int ring_predecessor(int tower, int towers) { return (tower + towers - 1) % towers; }

int ring_rank(int tower, int towers, int chunk, int chunks) {
  const int offset = chunk * std::max(1, towers / chunks) % towers;
  return (tower + towers - offset) % towers;
}

int ring_reduce_fragment(int rank, int towers, int tick) {
  return (rank + towers - 2 - tick) % towers;
}

int ring_gather_fragment(int rank, int towers, int tick) {
  return (rank + towers - 1 - tick) % towers;
}

GradientTable allreduce_ring(const GradientTable& grads, Reduction reduction, At at) {
  return Ring().reduce(grads, {.reduction = reduction}, at);
}

}  // namespace belfry
