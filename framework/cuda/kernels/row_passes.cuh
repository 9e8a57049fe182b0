// Passes over the rows of x [rows, channels] by GPU kernels, for sources that nvcc compiles. Passes
// sum rows along a balanced tree, or take each row separately. X is the type of elements, including
// f16 and bf16. A thread has N neighbouring channels, whose values it reads and writes at once: 16
// bytes where shapes and addresses allow, else one value.
#pragma once
#include "belfry/framework/base/shape.h"
#include "belfry/framework/cuda/kernels/fold.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/pack.h"

// BELFRY_UNROLL goes before loops over values in a thread's registers. BELFRY_ROLL goes before
// loops that need too many registers if unrolled.
#if defined(__CUDA_ARCH__)
#define BELFRY_UNROLL _Pragma("unroll")
#define BELFRY_ROLL _Pragma("unroll 1")
#else
#define BELFRY_UNROLL
#define BELFRY_ROLL
#endif

namespace belfry::cuda {

constexpr std::int64_t kLeaf = 8;        // rows that a thread sums one by one
constexpr int kRowThreads = 256;         // of a block
constexpr int kMostLanes = 8;            // threads side by side: 128 bytes of a row
constexpr int kPadding = 8;              // values between lines, so that those are in other banks
constexpr int kAtOnce = 2;               // rows that a thread reads before it computes
constexpr int kRowsEach = 4 * kAtOnce;   // rows of a thread, if rows do not depend on each other
constexpr std::int64_t kBlocks = 1'056;  // at most: four rounds of 132 multiprocessors

struct RowsOf {
  explicit RowsOf(const Shape& x) : rows(x.product(0, x.rank() - 1)), channels(x.back()) {}
  std::int64_t leaves() const { return (rows + kLeaf - 1) / kLeaf; }
  std::int64_t rows, channels;
};

// How a block's threads lie on rows and channels.
template <int N>
struct Tile {
  explicit Tile(std::int64_t of_channels, int most_lanes = kMostLanes) : channels(of_channels) {
    while (lanes < most_lanes && lanes * N < channels) lanes *= 2;
  }
  BELFRY_HD int width() const { return lanes * N; }  // channels
  BELFRY_HD int lines() const { return kRowThreads / lanes; }
  BELFRY_HD std::int64_t across() const { return (channels + width() - 1) / width(); }
  BELFRY_HD std::int64_t first_channel(std::int64_t block) const {
    return block % across() * width();
  }

  std::int64_t channels;
  int lanes = 1;
};

// The launch bounds limit registers so that K::kAtATime blocks fit: one works while another waits
// for memory.
template <class K>
__global__ void __launch_bounds__(kRowThreads, K::kAtATime)
    run_several_blocks(const __grid_constant__ K kernel) {
  __shared__ typename K::Shared shared;
  kernel(Block{static_cast<std::int64_t>(blockIdx.x), static_cast<int>(blockDim.x)}, shared);
}

template <class K>
void launch_over_rows(KernelQueue& queue, const K& kernel, std::int64_t blocks) {
  if (blocks == 0) return;
  queue.launch({.function = reinterpret_cast<const void*>(&run_several_blocks<K>),
                .kernel = &kernel,
                .grid = {.blocks = blocks, .threads = kRowThreads},
                .on_host = &run_on_host<K>});
}

// Leaves per partial result. It is a power of two, so the tree over all leaves does not depend on
// it.
inline std::int64_t leaves_per_group(std::int64_t leaves, std::int64_t channels) {
  std::int64_t each = leaves <= 256 ? 256 : 128;
  const std::int64_t tiles = (channels + 63) / 64;
  while ((leaves + each - 1) / each * tiles > kBlocks) each *= 2;
  return each;
}
inline std::int64_t groups_of(std::int64_t leaves, std::int64_t channels) {
  const std::int64_t each = leaves_per_group(leaves, channels);
  return (leaves + each - 1) / each;
}

// Sums over rows by a balanced tree over neighbouring leaves, the tree of ColumnTree
// (column_tree.h). ColumnTree also takes an outer axis, reads no packs, and needs no alignment. A
// Leaf says what is summed:
//   using Value = ...; static constexpr int kChannels = N;
//   static constexpr int kEach;                           leaves of a thread in one step
//   bool whole(end) const;                                leaves before `end` lack no row
//   void term<all>(leaf, channel, Value (&out)[N]) const; terms of N channels; all: a whole leaf
//   static Value neutral(); static Value combine(left, right);
//   void finish(group, channel, Value total) const;       takes a result
template <class Leaf>
struct RowTree {
  using Value = typename Leaf::Value;
  static constexpr int N = Leaf::kChannels, kEach = Leaf::kEach, kLevels = 16, kAtATime = 2;
  struct Shared {
    Value part[kRowThreads * N + kRowThreads / kMostLanes * kPadding];
    Value levels[kLevels][kMostLanes * N];
  };
  struct Combine {
    BELFRY_HD Value operator()(const Value& a, const Value& b) const { return Leaf::combine(a, b); }
  };

  Leaf leaf;
  Tile<N> tile;
  std::int64_t leaves, groups, per_group;

  // The tree over M leaves from `at` on, in registers. Where all of them are whole, the compiler
  // knows how many rows each has.
  template <int M, bool all>
  BELFRY_HD void tree(std::int64_t at, std::int64_t end, std::int64_t channel,
                      Value (&out)[N]) const {
    if constexpr (M > 1) {
      Value right[N];
      tree<M / 2, all>(at, end, channel, out);
      tree<M / 2, all>(at + M / 2, end, channel, right);
      BELFRY_UNROLL
      for (int j = 0; j < N; ++j) out[j] = Leaf::combine(out[j], right[j]);
    } else if (all || (at < end && channel < tile.channels)) {
      leaf.template term<all>(at, channel, out);
    } else {
      BELFRY_UNROLL
      for (int j = 0; j < N; ++j) out[j] = Leaf::neutral();
    }
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t first = tile.first_channel(block.index), group = block.index / tile.across();
    const std::int64_t begin = group * per_group;
    const std::int64_t end = begin + per_group < leaves ? begin + per_group : leaves;
    const int width = tile.width(), lines = tile.lines();
    const int pitch = width + (tile.lanes == kMostLanes ? kPadding : 0);
    // Neighbouring lanes lie side by side: column c is channel c % lanes * N + c / lanes.
    const auto part = [&](int line, int column) -> Value& {
      return shared.part[line * pitch + column];
    };
    std::uint32_t steps = 0;
    do {
      block.each([&](int thread) {
        const int lane = thread % tile.lanes, line = thread / tile.lanes;
        const std::int64_t channel = first + lane * N;
        const std::int64_t from = begin + (std::int64_t{steps} * lines + line) * kEach;
        Value total[N];
        if (from + kEach <= end && channel < tile.channels && leaf.whole(from + kEach))
          tree<kEach, true>(from, end, channel, total);
        else
          tree<kEach, false>(from, end, channel, total);
        BELFRY_UNROLL
        for (int j = 0; j < N; ++j) part(line, j * tile.lanes + lane) = total[j];
      });
      for (int apart = 1; apart < lines; apart *= 2)
        block.each([&](int thread) {
          for (int pair = thread; pair < lines / 2 / apart * width; pair += kRowThreads) {
            Value& left = part(pair / width * 2 * apart, pair % width);
            left = Leaf::combine(left, part((pair / width * 2 + 1) * apart, pair % width));
          }
        });
      block.each([&](int thread) {
        if (thread >= width) return;
        const auto level = [&](int k) -> Value& { return shared.levels[k][thread]; };
        add_pairwise(Combine{}, steps, level, part(0, thread));
      });
      ++steps;
    } while (begin + std::int64_t{steps} * lines * kEach < end);
    block.each([&](int thread) {
      const std::int64_t channel = first + thread % tile.lanes * N + thread / tile.lanes;
      if (thread >= width || channel >= tile.channels) return;
      const auto level = [&](int k) -> Value& { return shared.levels[k][thread]; };
      leaf.finish(group, channel, pairwise_total(Combine{}, steps, level, Leaf::neutral()));
    });
  }
};

// The leaves of a second launch: the results of the first launch's groups.
template <class Leaf>
struct GroupLeaf {
  using Value = typename Leaf::Value;
  static constexpr int kChannels = 1, kEach = 4;
  Leaf leaf;
  const Value* parts;

  BELFRY_HD static Value neutral() { return Leaf::neutral(); }
  BELFRY_HD static Value combine(const Value& a, const Value& b) { return Leaf::combine(a, b); }
  BELFRY_HD bool whole(std::int64_t) const { return true; }
  template <bool all>
  BELFRY_HD void term(std::int64_t group, std::int64_t channel, Value (&out)[1]) const {
    out[0] = parts[group * leaf.channels + channel];
  }
  BELFRY_HD void finish(std::int64_t group, std::int64_t channel, const Value& total) const {
    leaf.finish(group, channel, total);
  }
};

// Sums in one launch, or in two if there are many rows. A leaf has `channels`, and `to_parts`,
// which this function sets: the address of the groups' results, or null for the last launch.
template <class Leaf>
void over_rows(KernelQueue& queue, const RowsOf& x, Leaf leaf, std::byte* workspace) {
  using Value = typename Leaf::Value;
  const std::int64_t each = leaves_per_group(x.leaves(), x.channels);
  const std::int64_t groups = groups_of(x.leaves(), x.channels);
  const auto run = [&](const auto& of, auto tile, std::int64_t leaves, std::int64_t into,
                       std::int64_t per_group) {
    using Terms = std::remove_cvref_t<decltype(of)>;
    launch_over_rows(queue, RowTree<Terms>{of, tile, leaves, into, per_group},
                     tile.across() * into);
  };
  Value* const parts = reinterpret_cast<Value*>(workspace);
  leaf.to_parts = groups == 1 ? nullptr : parts;
  run(leaf, Tile<Leaf::kChannels>(x.channels), x.leaves(), groups, each);
  if (groups == 1) return;
  leaf.to_parts = nullptr;
  // A step of a block takes all groups of its channels.
  int lanes = kMostLanes;
  while (lanes > 1 && kRowThreads / lanes * GroupLeaf<Leaf>::kEach < groups) lanes /= 2;
  run(GroupLeaf<Leaf>{leaf, parts}, Tile<1>(x.channels, lanes), groups, 1, groups);
}

// Bytes of workspace that over_rows() needs.
template <class Value>
std::int64_t parts_bytes(const RowsOf& x) {
  const std::int64_t groups = groups_of(x.leaves(), x.channels);
  return groups == 1 ? 0 : groups * x.channels * static_cast<std::int64_t>(sizeof(Value));
}

// A pass over rows that do not depend on each other. A Pass says:
//   struct Factors { T ...[kMostLanes * N]; };         per channel
//   void find(Factors&, int column, channel) const;
//   Rows of kAtOnce, read by load(at) and written by store(at, row, factors, column).
template <class Pass>
struct EachRow {
  static constexpr int N = Pass::kChannels, kAtATime = 4;
  using Shared = typename Pass::Factors;
  Pass pass;
  Tile<N> tile;
  std::int64_t rows;

  std::int64_t blocks() const {
    const std::int64_t each = std::int64_t{tile.lines()} * kRowsEach;
    return (rows + each - 1) / each * tile.across();
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t first = tile.first_channel(block.index);
    const std::int64_t top = block.index / tile.across() * tile.lines() * kRowsEach;
    block.each([&](int thread) {
      if (thread < tile.width() && first + thread < tile.channels)
        pass.find(shared, thread, first + thread);
    });
    block.each([&](int thread) {
      const int column = thread % tile.lanes * N;
      if (first + column >= tile.channels) return;
      for (int done = 0; done < kRowsEach; done += kAtOnce) {
        typename Pass::Row row[kAtOnce]{};
        const auto at = [&](int k) {
          return top + (done + k) * std::int64_t{tile.lines()} + thread / tile.lanes;
        };
        BELFRY_UNROLL
        for (int k = 0; k < kAtOnce; ++k)
          if (at(k) < rows) row[k] = pass.load(at(k) * tile.channels + first + column);
        BELFRY_UNROLL
        for (int k = 0; k < kAtOnce; ++k)
          if (at(k) < rows)
            pass.store(at(k) * tile.channels + first + column, row[k], shared, column);
      }
    });
  }
};

template <class Pass>
void over_each_row(KernelQueue& queue, const RowsOf& x, const Pass& pass) {
  const EachRow<Pass> kernel{pass, Tile<Pass::kChannels>(x.channels), x.rows};
  launch_over_rows(queue, kernel, kernel.blocks());
}

}  // namespace belfry::cuda
