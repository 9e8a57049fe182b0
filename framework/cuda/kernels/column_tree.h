// Sums over the rows of [outer, leaves, columns], of values of any kind, by a balanced tree over
// neighbours. With leaves of 8 rows, this is the order of kernels::column_sums.
#pragma once
#include "belfry/framework/cuda/kernels/fold.h"
#include "belfry/framework/cuda/kernels/launch.h"

namespace belfry::cuda {

// A Leaf says what is summed:
//   using Value = ...;                                             trivial
//   Value operator()(outer, leaf, column) const;                   one term
//   static Value neutral(); static Value combine(left, right);
//   void finish(outer, group, column, Value total) const;          takes a result
// Leaves are cut into groups of `per_group`; each group has its own total.
template <class Leaf>
struct ColumnTree {
  using Value = typename Leaf::Value;
  static constexpr int kColumns = 32, kRows = 8, kEach = 4;  // leaves of a thread in one step
  static constexpr int kThreads = kColumns * kRows, kStep = kRows * kEach;
  struct Shared {
    Value part[kRows][kColumns], levels[32][kColumns];
  };
  struct Combine {
    BELFRY_HD Value operator()(const Value& a, const Value& b) const { return Leaf::combine(a, b); }
  };

  Leaf leaf;
  std::int64_t leaves, columns, groups, per_group;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t tiles = (columns + kColumns - 1) / kColumns;
    const std::int64_t first_column = block.index % tiles * kColumns;
    const std::int64_t group = block.index / tiles % groups, outer = block.index / tiles / groups;
    const std::int64_t begin = group * per_group;
    const std::int64_t end = begin + per_group < leaves ? begin + per_group : leaves;
    std::uint32_t steps = 0;
    do {
      block.each([&](int thread) {
        const std::int64_t column = first_column + thread % kColumns;
        const std::int64_t from = begin + steps * std::int64_t{kStep} + thread / kColumns * kEach;
        Value x[kEach];
        for (int k = 0; k < kEach; ++k)
          x[k] =
              column < columns && from + k < end ? leaf(outer, from + k, column) : Leaf::neutral();
        shared.part[thread / kColumns][thread % kColumns] =
            Leaf::combine(Leaf::combine(x[0], x[1]), Leaf::combine(x[2], x[3]));
      });
      block.each([&](int thread) {
        if (thread >= kColumns) return;
        const auto pair = [&](int k) {
          return Leaf::combine(shared.part[k][thread], shared.part[k + 1][thread]);
        };
        const auto level = [&](int k) -> Value& { return shared.levels[k][thread]; };
        add_pairwise(
            Combine{}, steps, level,
            Leaf::combine(Leaf::combine(pair(0), pair(2)), Leaf::combine(pair(4), pair(6))));
      });
      ++steps;
    } while (begin + steps * std::int64_t{kStep} < end);
    block.each([&](int thread) {
      const std::int64_t column = first_column + thread;
      if (thread >= kColumns || column >= columns) return;
      const auto level = [&](int k) -> Value& { return shared.levels[k][thread]; };
      leaf.finish(outer, group, column, pairwise_total(Combine{}, steps, level, Leaf::neutral()));
    });
  }
};

// Cuts leaves into groups, so that the whole GPU has work; 1 group if one block is as fast. The
// groups depend only on the number of leaves.
struct LeafGroups {
  explicit LeafGroups(std::int64_t leaves)
      : groups(leaves <= 256 ? 1 : (leaves + 127) / 128), per_group(groups == 1 ? leaves : 128) {}
  std::int64_t groups, per_group;
};

template <class Leaf>
void column_tree(KernelQueue& queue, const Leaf& leaf, std::int64_t outer, std::int64_t leaves,
                 std::int64_t columns, LeafGroups by) {
  using Kernel = ColumnTree<Leaf>;
  const std::int64_t tiles = (columns + Kernel::kColumns - 1) / Kernel::kColumns;
  launch(queue, Kernel{leaf, leaves, columns, by.groups, by.per_group},
         {.blocks = outer * tiles * by.groups, .threads = Kernel::kThreads});
}

}  // namespace belfry::cuda
