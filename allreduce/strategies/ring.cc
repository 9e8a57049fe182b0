// ring: fragments of every tensor travel around the towers, once to be summed, once to be shared.
// The ring of several processes is in combine_over_processes.cc: each adds its towers first.
#include <algorithm>

#include "belfry/allreduce/combine_over_processes.h"
#include "belfry/allreduce/pieces.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {
namespace ring_strategy {

// The tower from which this tower takes fragments: of three towers, 2, 0 and 1.
int predecessor(int tower, int towers) { return (tower + towers - 1) % towers; }

// The place of a tower in the ring of chunk s of n: its own, rotated back by s * max(1, K / n). So
// fragments of chunks move to different towers, and each tower keeps its predecessor.
int rank_of(int tower, int towers, int chunk, int chunks) {
  const int offset = chunk * std::max(1, towers / chunks) % towers;
  return (tower + towers - offset) % towers;
}

// The fragment, of K in a chunk, that the tower of this rank takes at a tick in [0, K - 1). In the
// reduce phase it adds its own to the fragment; in the gather phase it keeps the finished one.
int reduce_fragment(int rank, int towers, int tick) { return (rank + towers - 2 - tick) % towers; }

int gather_fragment(int rank, int towers, int tick) { return (rank + towers - 1 - tick) % towers; }

// Each tensor is cut into K fragments per chunk, of nearly equal size. At each of K - 1 ticks every
// tower takes one fragment of each chunk from its predecessor and adds its own (predecessor's +
// own); finished sums, divided for a mean, go around in another K - 1 ticks. Rules and indices are
// those of tf_cnn_benchmarks' xring, but no padding is sent: short tensors have fewer fragments.
// There may be more chunks than towers, as `ring#n` of a spec counts chunks per tensor.
//
// Not canonical: the order of additions differs from fragment to fragment. Works for any K and
// shape. Throws InvalidArgument if the shape of a gradient is not fully known.
class Ring final : public Strategy {
 public:
  explicit Ring(int chunks = 1, bool in_one_node = false)
      : chunks_(chunks), in_one_node_(in_one_node) {}

  // Sums of two towers have the order of the tree, except that another of two NaNs is kept. So this
  // is canonical for no K.
  bool canonical(int) const override { return false; }
  std::string refusal_of_processes(const std::vector<DeviceSpec>&) const override {
    return chunks_ == 1 ? "" : "ring cuts no chunks between processes; use ring without #n";
  }
  std::unique_ptr<Strategy> in_chunks(int chunks) const override {
    return std::make_unique<Ring>(chunks, in_one_node_);
  }
  // Makes no difference in one process.
  std::unique_ptr<Strategy> in_one_node() const override {
    return std::make_unique<Ring>(chunks_, true);
  }

 private:
  OutputRows combine(const GradientTable& grads, Reduction reduction) const override {
    if (grads.graph().process().size > 1)
      return combine_over_processes(grads, reduction == Reduction::kMean, in_one_node_,
                                    ProcessSum::kRing);
    NameScope names(grads.graph(), "AllReduceRing");
    return by_variable(grads, [&](int v) { return add_variable(grads, v, reduction); });
  }

  std::vector<Output> add_variable(const GradientTable& grads, int v, Reduction reduction) const;
  // One tick of all towers. `fragment` gives the fragment that a rank takes. `take` combines its
  // predecessor's piece with its own.
  template <class Fragment, class Take>
  void tick(const GradientTable& grads, OutputRows& pieces, const Fragment& fragment,
            const Take& take) const;

  int chunks_;
  bool in_one_node_;  // a bucket travels between processes as one row
};

// pieces[t][i]: tower t's current piece i. Fragment s of chunk c is piece s * chunks + c.
std::vector<Output> Ring::add_variable(const GradientTable& grads, int v,
                                       Reduction reduction) const {
  const int towers = grads.towers();
  const std::int64_t elements = known_elements(grads, v, "ring all-reduce");
  if (elements == 0) return grads.values(v);  // nothing to add
  const std::vector<std::int64_t> sizes = even_sizes(elements, std::int64_t{chunks_} * towers);
  OutputRows pieces;
  for (int t = 0; t < towers; ++t) {
    DeviceScope on(grads.graph(), grads.device(t));
    pieces.push_back(cut(flat_row(grads.at(t, v).value), sizes));
  }
  for (int now = 0; now < towers - 1; ++now) {
    const bool last = now == towers - 2;
    tick(
        grads, pieces, [&](int rank) { return reduce_fragment(rank, towers, now); },
        [&](Output theirs, Output own) {
          const Output total = add_n({theirs, own});
          return last && reduction == Reduction::kMean ? total / towers : total;
        });
  }
  for (int now = 0; now < towers - 1; ++now)
    tick(
        grads, pieces, [&](int rank) { return gather_fragment(rank, towers, now); },
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
void Ring::tick(const GradientTable& grads, OutputRows& pieces, const Fragment& fragment,
                const Take& take) const {
  const OutputRows before = pieces;
  const int towers = grads.towers();
  for (int t = 0; t < towers; ++t) {
    const auto from = static_cast<std::size_t>(predecessor(t, towers));
    const auto to = static_cast<std::size_t>(t);
    DeviceScope on(grads.graph(), grads.device(t));
    for (int c = 0; c < chunks_; ++c) {
      const int rank = rank_of(t, towers, c, chunks_);
      const auto i = static_cast<std::size_t>(fragment(rank) * chunks_ + c);
      if (i >= before[0].size()) continue;  // an empty fragment
      pieces[to][i] = take(before[from][i], before[to][i]);
    }
  }
}

const StrategyRegistration ring{"ring", [] { return std::make_unique<Ring>(); }};
const StrategyAlias xring{"xring", "ring"};

}  // namespace ring_strategy
}  // namespace
}  // namespace belfry
