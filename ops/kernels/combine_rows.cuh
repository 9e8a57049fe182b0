// Rows that have the same id, combined in the order of the host's loops (combine_rows.h).
#pragma once
#include "belfry/framework/cuda/kernels/sort_indices.h"
#include "belfry/ops/kernels/combine_rows.h"

namespace belfry::cuda {

// x is [batches, middle, count, width], and its ids [batches, count] are sorted. y is [batches,
// middle, rows, width]; rows that no id names stay as they are. For each id, the threads of its
// first row of x combine all its rows, in order of positions. In text one id has thousands of rows,
// so a thread loads many before it combines them in order: it waits for memory once per kAhead
// rows.
template <class T, class F>
struct CombineRows {
  using Shared = Nothing;
  static constexpr int kAhead = 32;
  const T* x;
  const PlacedIndex* sorted;
  std::int64_t batches, middle, rows, width, count;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      const std::int64_t ids = batches * count, row = middle * width;
      if (i >= ids * row) return;
      const std::int64_t first = i / row, place = i - first * row, id = sorted[first].index;
      if (id == batches * rows || (first > 0 && sorted[first - 1].index == id)) return;
      const std::int64_t batch = id / rows, between = place / width;
      const std::int64_t table = batch * middle + between, column = place - between * width;
      const T* const from = x + table * count * width + column;
      const auto term = [&](std::int64_t k) {
        return from[(sorted[k].position - batch * count) * width];
      };
      T result = F::template kNone<T>;
      std::int64_t k = first;
      // The ids are sorted, so if the last of kAhead rows has this id, all of them have it.
      for (; k + kAhead <= ids && sorted[k + kAhead - 1].index == id; k += kAhead) {
        T terms[kAhead];
        for (int j = 0; j < kAhead; ++j) terms[j] = term(k + j);
        for (int j = 0; j < kAhead; ++j) result = F{}(result, terms[j]);
      }
      for (; k < ids && sorted[k].index == id; ++k) result = F{}(result, term(k));
      y[(table * rows + id - batch * rows) * width + column] = result;
    });
  }
};

}  // namespace belfry::cuda
