// Indices in increasing order, equal ones in order of their positions: a radix sort, so the work is
// linear in their number.
#pragma once
#include <utility>

#include "belfry/framework/cuda/kernels/indices.h"
#include "belfry/framework/cuda/kernels/launch.h"

namespace belfry::cuda {

struct PlacedIndex {
  std::int64_t index, position;
};

namespace sorting {

inline constexpr int kBits = 6, kDigits = 1 << kBits;
// A block sorts a tile of indices by one digit. Thread t takes kEach consecutive indices, and
// handles digit t.
inline constexpr std::int64_t kEach = 16, kTile = kDigits * kEach;

struct Tiles {
  const PlacedIndex* from;
  std::int64_t count;
  int shift;  // of the digit

  struct Counts {
    std::uint16_t at[kDigits][kDigits + 2];  // per digit and thread; each in its own bank
  };

  std::int64_t tiles() const { return (count + kTile - 1) / kTile; }
  // Calls f(index, its digit) for a thread's indices in order.
  template <class F>
  BELFRY_HD void each(const Block& block, int thread, const F& f) const {
    const std::int64_t first = block.index * kTile + thread * kEach;
    for (std::int64_t i = first; i < first + kEach && i < count; ++i)
      f(from[i], static_cast<int>(from[i].index >> shift & (kDigits - 1)));
  }
  BELFRY_HD void count_digits(const Block& block, Counts& counts) const {
    block.each([&](int thread) {
      for (int digit = 0; digit < kDigits; ++digit) counts.at[thread][digit] = 0;
      each(block, thread, [&](const PlacedIndex&, int digit) { ++counts.at[thread][digit]; });
    });
  }
};

// `each` indices belong to a table of `rows` rows, and those after them to the next table.
struct PlaceIndices {
  using Shared = Nothing;
  Indices indices;
  std::int64_t rows, each, limit, count;
  PlacedIndex* to;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t at = block.index * block.threads + thread;
      if (at >= count) return;
      const std::int64_t index = indices.below(rows, at);
      to[at] = {index < 0 ? limit : at / each * rows + index, at};
    });
  }
};

// sums[digit][tile]: how many indices of a tile have the digit.
struct CountDigits {
  using Shared = Tiles::Counts;
  Tiles in;
  std::int64_t tiles, *sums;

  BELFRY_HD void operator()(const Block& block, Shared& counts) const {
    in.count_digits(block, counts);
    block.each([&](int digit) {
      std::int64_t sum = 0;
      for (int thread = 0; thread < kDigits; ++thread) sum += counts.at[thread][digit];
      sums[digit * tiles + block.index] = sum;
    });
  }
};

// Replaces sums[digit][tile] by the sum of all entries before it. For one block.
struct SumBefore {
  struct Shared {
    std::int64_t of[kDigits];
  };
  std::int64_t tiles, *sums;

  BELFRY_HD void operator()(const Block& block, Shared& all) const {
    block.each([&](int digit) {
      all.of[digit] = 0;
      for (std::int64_t tile = 0; tile < tiles; ++tile) all.of[digit] += sums[digit * tiles + tile];
    });
    block.each([&](int digit) {
      std::int64_t before = 0;
      for (int smaller = 0; smaller < digit; ++smaller) before += all.of[smaller];
      for (std::int64_t i = digit * tiles; i < (digit + 1) * tiles; ++i) {
        const std::int64_t sum = sums[i];
        sums[i] = before;
        before += sum;
      }
    });
  }
};

// Moves each index after all with a smaller digit, and after earlier ones with the same digit.
struct MoveIndices {
  using Shared = Tiles::Counts;
  Tiles in;
  std::int64_t tiles;
  const std::int64_t* before;  // [digit][tile]
  PlacedIndex* to;

  BELFRY_HD void operator()(const Block& block, Shared& counts) const {
    in.count_digits(block, counts);
    block.each([&](int digit) {
      std::uint16_t sum = 0;
      for (int thread = 0; thread < kDigits; ++thread) {
        const std::uint16_t count = counts.at[thread][digit];
        counts.at[thread][digit] = sum;
        sum = static_cast<std::uint16_t>(sum + count);
      }
    });
    block.each([&](int thread) {
      in.each(block, thread, [&](const PlacedIndex& index, int digit) {
        to[before[digit * tiles + block.index] + counts.at[thread][digit]++] = index;
      });
    });
  }
};

}  // namespace sorting

// Bytes of workspace, aligned to 8, that sort_indices() needs.
inline std::int64_t sort_workspace(std::int64_t count) {
  return 2 * count * static_cast<std::int64_t>(sizeof(PlacedIndex)) +
         sorting::kDigits * sorting::Tiles{nullptr, count, 0}.tiles() *
             static_cast<std::int64_t>(sizeof(std::int64_t));
}

// Sorts `count` indices of rows in `tables` tables of `rows` rows, which lie one after the other
// and have equally many indices. Row r of table t has number t * rows + r. Indices outside [0,
// rows) are recorded as faults and come last, as tables * rows. Returns the sorted indices, in the
// workspace.
inline const PlacedIndex* sort_indices(KernelQueue& queue, const Indices& indices,
                                       std::int64_t count, std::int64_t rows, std::byte* workspace,
                                       std::int64_t tables = 1) {
  using namespace sorting;
  auto* from = reinterpret_cast<PlacedIndex*>(workspace);
  PlacedIndex* to = from + count;
  auto* const sums = reinterpret_cast<std::int64_t*>(to + count);
  const std::int64_t limit = tables * rows;
  if (count == 0) return from;
  launch(queue, PlaceIndices{indices, rows, count / tables, limit, count, from}, grid_for(count));
  for (int shift = 0; limit >> shift > 0; shift += kBits) {
    const Tiles in{from, count, shift};
    const Grid grid{.blocks = in.tiles(), .threads = kDigits};
    launch(queue, CountDigits{in, in.tiles(), sums}, grid);
    launch(queue, SumBefore{in.tiles(), sums}, {.blocks = 1, .threads = kDigits});
    launch(queue, MoveIndices{in, in.tiles(), sums, to}, grid);
    std::swap(from, to);
  }
  return from;
}

}  // namespace belfry::cuda
