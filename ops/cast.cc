#include "belfry/ops/cast.h"

#include <algorithm>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/framework/kernels/convert.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/framework/kernels/simd.h"

namespace belfry {
namespace {

OutputTypes cast_shape(const ShapeContext& c) {
  return {{c.input(0), c.options<CastOptions>().dtype}};
}

std::vector<Output> cast_gradient(const Node& node, std::span<const Output> grads) {
  const DType from = node.input(0).dtype();
  return {grads[0] && is_floating(from) ? cast(grads[0], from) : Output()};
}

template <class To, class From>
BELFRY_KERNEL void convert(const From* x, To* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = functors::Convert<To>{}(x[i]);
}

// Calls row(i, n, buffer) for rows of n elements, from element i on, that fit in a buffer.
template <class Row>
void in_rows(const KernelPointers& p, const Row& row) {
  constexpr std::int64_t kRow = 1024;
  float buffer[kRow];
  for (std::int64_t i = p.begin(); i < p.end(); i += kRow)
    row(i, std::min(kRow, p.end() - i), buffer);
}

KernelRun from_half(DType from, DType to) {
  const auto widen = kernels::half_conversion(from).widen;
  if (is_half(to))
    return [widen, narrow = kernels::half_conversion(to).narrow](const KernelPointers& p) {
      in_rows(p, [&](std::int64_t i, std::int64_t n, float* row) {
        widen(p.input<std::uint16_t>(0) + i, row, n);
        narrow(row, p.output<std::uint16_t>() + i, n);
      });
    };
  return visit_any(to, [widen]<class To>(To) -> KernelRun {
    return [widen](const KernelPointers& p) {
      in_rows(p, [&](std::int64_t i, std::int64_t n, float* row) {
        widen(p.input<std::uint16_t>(0) + i, row, n);
        convert(row, p.output<To>() + i, n);
      });
    };
  });
}

KernelRun to_half(DType from, DType to) {
  return visit_any(from,
                   [narrow = kernels::half_conversion(to).narrow]<class From>(From) -> KernelRun {
                     return [narrow](const KernelPointers& p) {
                       in_rows(p, [&](std::int64_t i, std::int64_t n, float* row) {
                         convert(p.input<From>(0) + i, row, n);
                         narrow(row, p.output<std::uint16_t>() + i, n);
                       });
                     };
                   });
}

// The rounded sum is not the sum of rounded terms.
Sharding cast_shards(const ShardContext& c) {
  const bool widens = is_floating(c.inputs[0].dtype) && is_floating(c.outputs[0].dtype) &&
                      size_of(c.outputs[0].dtype) >= size_of(c.inputs[0].dtype) &&
                      !is_half(c.outputs[0].dtype);
  return widens ? linear_shards(c) : pointwise_shards(c);
}

KernelRun cast_kernel(KernelPlan& plan) {
  if (is_half(plan.input(0).dtype)) return from_half(plan.input(0).dtype, plan.dtype());
  if (is_half(plan.dtype())) return to_half(plan.input(0).dtype, plan.dtype());
  return visit_any(plan.input(0).dtype, [&]<class From>(From) {
    return visit_any(plan.dtype(), []<class To>(To) -> KernelRun {
      return [](const KernelPointers& p) {
        convert(p.input<From>(0) + p.begin(), p.output<To>() + p.begin(), p.end() - p.begin());
      };
    });
  });
}

}  // namespace

const Op kCast{.name = "Cast",
               .inputs = 1,
               .shape = cast_shape,
               .gradient = cast_gradient,
               .split = WorkSplit::kElements,
               .shards = cast_shards,
               .reference = cast_kernel,
               .half = true};
const StoredOptions<CastOptions> kStoredCast(kCast);

Output cast(Output x, DType dtype, At at) {
  if (x.dtype() == dtype) return x;
  return x.graph().add(kCast, {x}, at, NodeOptions(CastOptions{dtype})).output();
}

}  // namespace belfry
