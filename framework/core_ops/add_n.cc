#include "belfry/framework/core_ops/add_n.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/kernels/plain.h"
#include "belfry/framework/kernels/reduce.h"

namespace belfry {
namespace {

OutputTypes add_n_shape(const ShapeContext& c) {
  c.require(c.inputs() > 0, "needs at least one input");
  c.require_same_dtype();
  Shape shape = c.input(0);
  for (std::size_t i = 1; i < c.inputs(); ++i) {
    c.require(c.input(i).compatible(shape), "inputs 0 and ", i, " have shapes ", c.input(0),
              " and ", c.input(i));
    for (std::size_t axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis] == kUnknownSize) shape[axis] = c.input(i)[axis];
  }
  return {{shape, c.dtype(0)}};
}

std::vector<Output> add_n_gradient(const Node& node, std::span<const Output> grads) {
  return std::vector<Output>(node.inputs().size(), grads[0]);
}

KernelRun add_n_reference(KernelPlan& plan) {
  return visit_any(plan.dtype(), [](auto zero) -> KernelRun {
    using T = decltype(zero);
    return [](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.output<T>()[i] = kernels::plain_tree<T>(p.all_inputs(), i);
    };
  });
}

template <class T>
KernelRun add_n_fast() {
  return [](const KernelPointers& p) {
    kernels::tree_sum<T>(p.all_inputs(), p.all_outputs(), p.begin(), p.end());
  };
}

KernelRun add_n_cpu(KernelPlan& plan) {
  switch (plan.dtype()) {
    case DType::kF32: return add_n_fast<float>();
    case DType::kF64: return add_n_fast<double>();
    case DType::kI32: return add_n_fast<std::int32_t>();
    default: return {};
  }
}

}  // namespace

const Op kAddN{.name = "AddN",
               .inputs = kVariadicInputs,
               .shape = add_n_shape,
               .gradient = add_n_gradient,
               .split = WorkSplit::kElements,
               .shards = linear_shards,
               .in_place = InPlace::kAny,
               .cpu = add_n_cpu,
               .reference = add_n_reference};

Output add_n(std::span<const Output> xs, At at) {
  require(!xs.empty(), "add_n (", at.site, "): needs at least one input");
  if (xs.size() == 1) return xs[0];
  return xs[0].graph().add(kAddN, xs, at).output();
}

Output add_n(std::initializer_list<Output> xs, At at) {
  return add_n(std::span(xs.begin(), xs.size()), at);
}

}  // namespace belfry
