// Offsets of the elements of two tensors that a kernel goes through together.
#pragma once
#include <span>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/kernels/broadcast.h"
#include "belfry/framework/kernels/simd.h"

namespace belfry::cuda {

// A kernel's walk over two tensors, e.g. a kernels::Broadcast: rows of `inner` elements, along
// which each tensor advances or stays in place.
struct Strides {
  static constexpr std::size_t kMost = 8;  // dimensions, after neighbours were joined
  using Dimension = kernels::Broadcast::Dimension;
  using Offsets = kernels::Broadcast::Offsets;

  Strides() = default;
  explicit Strides(const kernels::Broadcast& b) : Strides(b.inner, b.outer(), b.a_runs, b.b_runs) {}
  // `rows` from the innermost dimension out.
  Strides(std::int64_t row, std::span<const Dimension> rows, bool a_moves = true,
          bool b_moves = true)
      : inner(row), a_runs(a_moves), b_runs(b_moves), outer(static_cast<int>(rows.size())) {
    require(rows.size() <= kMost, "GPUs go through at most ", kMost,
            " dimensions that are apart, not ", rows.size(), "; reshape the tensor");
    for (std::size_t d = 0; d < rows.size(); ++d) dims[d] = rows[d];
    narrow = elements() <= 0x7fffffff;
  }

  std::int64_t elements() const {
    std::int64_t count = inner;
    for (int d = 0; d < outer; ++d) count *= dims[d].size;
    return count;
  }

  // The offsets of the walk's element i in both tensors.
  BELFRY_HD Offsets at(std::int64_t i) const {
    if (outer == 0) return {a_runs ? i : 0, b_runs ? i : 0};
    return narrow ? divided(static_cast<std::uint32_t>(i)) : divided(i);
  }

  template <class I>  // divisions of 32 bits are several times as fast
  BELFRY_HD Offsets divided(I i) const {
    I row = i / static_cast<I>(inner);
    const auto column = static_cast<std::int64_t>(i - row * static_cast<I>(inner));
    Offsets to{a_runs ? column : 0, b_runs ? column : 0};
    for (int d = 0; d < outer; ++d) {
      const I next = row / static_cast<I>(dims[d].size);
      const auto index = static_cast<std::int64_t>(row - next * static_cast<I>(dims[d].size));
      to.a += index * dims[d].a_stride;
      to.b += index * dims[d].b_stride;
      row = next;
    }
    return to;
  }

  std::int64_t inner = 1;
  bool a_runs = true, b_runs = true, narrow = true;
  int outer = 0;
  Dimension dims[kMost];  // from the innermost out
};

}  // namespace belfry::cuda
