// Rows that have the same id, combined in order of the rows.
#pragma once
#include <cstdint>

#include "belfry/ops/kernels/extremes.h"
#include "belfry/ops/kernels/functors.h"

namespace belfry::kernels {

// How a row is combined with the next one, and what a row is that no id names.
struct AddRows : functors::Add {
  template <class T>
  static constexpr T kNone = T(0);
};
struct LargestRows : Larger {
  template <class T>
  static constexpr T kNone = kNeutral<T>;
};

// Combines rows [count, width] with the table's rows that the ids name, in order of the ids.
template <class F, class T, class Id>
BELFRY_KERNEL void combine_rows(F f, const T* rows, const Id* ids, std::int64_t count,
                                std::int64_t width, T* table) {
  for (std::int64_t i = 0; i < count; ++i) {
    T* const sum = table + static_cast<std::int64_t>(ids[i]) * width;
    const T* const term = rows + i * width;
    BELFRY_INDEPENDENT
    for (std::int64_t j = 0; j < width; ++j) sum[j] = f(sum[j], term[j]);
  }
}

// The same, one element at a time.
template <class F, class T, class Id>
void plain_combine_rows(F f, const T* rows, const Id* ids, std::int64_t count, std::int64_t width,
                        T* table) {
  for (std::int64_t i = 0; i < count * width; ++i) {
    T& sum = table[static_cast<std::int64_t>(ids[i / width]) * width + i % width];
    sum = f(sum, rows[i]);
  }
}

}  // namespace belfry::kernels
