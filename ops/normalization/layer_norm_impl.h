// Shared by the host kernels of layer norm (`centred`) and RMS norm in this folder.
#pragma once
#include <type_traits>

#include "belfry/framework/graph/kernel.h"
#include "belfry/ops/normalization/layer_norm.h"

namespace belfry {

template <bool centred>
using RowNormOptions = std::conditional_t<centred, LayerNormOptions, RmsNormOptions>;

// gamma, and beta if centred.
constexpr std::size_t row_norm_factors(bool centred) { return centred ? 2 : 1; }

struct NormRows {
  explicit NormRows(const Shape& x)
      : columns(x.back()),
        count(columns == 0 ? 0 : x.product(0, x.rank() - 1)),
        per_sample(columns == 0 ? 0 : x.product(1, x.rank() - 1)) {}
  std::int64_t columns, count, per_sample;
};

// The fast kernels, which are also used for a norm that is fused with the sums around it
// (fused_layer_norm.h).
template <bool centred>
KernelRun row_norm_on_host(KernelPlan& plan);
template <bool centred>
KernelRun row_norm_gradient_on_host(KernelPlan& plan);

}  // namespace belfry
