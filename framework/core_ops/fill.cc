#include "belfry/framework/core_ops/fill.h"

#include <algorithm>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/framework/kernels/half.h"

namespace belfry {
namespace {

OutputTypes fill_shape(const ShapeContext& c) {
  const auto& options = c.options<FillOptions>();
  c.require(options.shape.is_fully_known(), "shape ", options.shape, " must be known");
  return {{options.shape, options.dtype}};
}

void require_fills(double value, DType dtype) {
  scalar_tensor(value, dtype);  // refuses values that the type cannot hold
}

KernelRun fill_kernel(double value, DType dtype) {
  if (is_half(dtype))
    return [bits = kernels::half_bits(value, dtype)](const KernelPointers& p) {
      std::fill(p.output<std::uint16_t>() + p.begin(), p.output<std::uint16_t>() + p.end(), bits);
    };
  return visit_any(dtype, [&](auto zero) -> KernelRun {
    using T = decltype(zero);
    return [v = static_cast<T>(value)](const KernelPointers& p) {
      std::fill(p.output<T>() + p.begin(), p.output<T>() + p.end(), v);
    };
  });
}

KernelRun fill_reference(KernelPlan& plan) {
  return fill_kernel(plan.options<FillOptions>().value, plan.dtype());
}

KernelRun fill_like_reference(KernelPlan& plan) {
  return fill_kernel(plan.options<FillLikeOptions>().value, plan.dtype());
}

// The values do not depend on the input, so gradients of gradients end here.
std::vector<Output> fill_like_gradient(const Node&, std::span<const Output>) { return {Output()}; }

}  // namespace

const Op kFill{.name = "Fill",
               .inputs = 0,
               .shape = fill_shape,
               .no_gradient = "it has no inputs",
               .split = WorkSplit::kElements,
               .reference = fill_reference,
               .half = true};

const Op kFillLike{.name = "FillLike",
                   .inputs = 1,
                   .shape = same_as_input,
                   .gradient = fill_like_gradient,
                   .split = WorkSplit::kElements,
                   .shards = pointwise_shards,
                   .reference = fill_like_reference,
                   .half = true};
const StoredOptions<FillOptions> kStoredFill(kFill);
const StoredOptions<FillLikeOptions> kStoredFillLike(kFillLike);

Output fill(Graph& graph, Shape shape, double value, DType dtype, At at) {
  require_fills(value, dtype);
  return graph.add(kFill, {}, at, NodeOptions(FillOptions{std::move(shape), value, dtype}))
      .output();
}

Output fill_like(Output x, double value, At at) {
  require_fills(value, x.dtype());
  return x.graph().add(kFillLike, {x}, at, NodeOptions(FillLikeOptions{value})).output();
}

}  // namespace belfry
