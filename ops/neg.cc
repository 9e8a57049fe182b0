#include "belfry/ops/neg.h"

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"

namespace belfry {
namespace {

OutputTypes neg_shape(const ShapeContext& c) {
  require_arithmetic(c);
  return {c.type(0)};
}

std::vector<Output> neg_gradient(const Node&, std::span<const Output> grads) {
  return {neg(grads[0])};
}

KernelRun neg_cpu(KernelPlan& plan) {
  return is_floating(plan.dtype()) ? unary<functors::Neg>(plan) : KernelRun();
}

KernelRun neg_reference(KernelPlan& plan) {
  return visit_numeric(plan.dtype(), []<class T>(T) -> KernelRun {
    return [](const KernelPointers& p) {
      using W = typename functors::Wrapping<T>::Type;
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.output<T>()[i] = static_cast<T>(-static_cast<W>(p.input<T>(0)[i]));
    };
  });
}

}  // namespace

const Op kNeg{.name = "Neg",
              .inputs = 1,
              .shape = neg_shape,
              .gradient = neg_gradient,
              .split = WorkSplit::kElements,
              .shards = linear_shards,
              .in_place = InPlace::kFirst,
              .cpu = neg_cpu,
              .reference = neg_reference};

Output neg(Output x, At at) { return x.graph().add(kNeg, {x}, at).output(); }

}  // namespace belfry
