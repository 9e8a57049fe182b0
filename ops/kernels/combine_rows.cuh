// Rows that have the same id, combined in the order of the host's loops (combine_rows.h).
#pragma once
#include "belfry/framework/cuda/kernels/sort_indices.h"
#include "belfry/ops/kernels/combine_rows.h"

namespace belfry::cuda {

// x is [batches, middle, count, width], and its ids [batches, count] are sorted. y is [batches,
// middle, rows, width]; rows that no id names stay as they are. For each id, the threads of its
// first row of x combine all its rows, in order of positions.
template <class T, class F>
struct CombineRows {
  using Shared = Nothing;
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
      T result = F::template kNone<T>;
      for (std::int64_t k = first; k < ids && sorted[k].index == id; ++k)
        result = F{}(result, from[(sorted[k].position - batch * count) * width]);
      y[(table * rows + id - batch * rows) * width + column] = result;
    });
  }
};

}  // namespace belfry::cuda
