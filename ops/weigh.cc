#include "belfry/ops/weigh.h"

#include "belfry/framework/kernels/pointwise.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/typed_kernels.h"

namespace belfry {
namespace {

OutputTypes weigh_shape(const ShapeContext& c) {
  c.require_floating(0);
  c.require_same_dtype();
  c.require_rank(1, 0);
  return {c.type(0)};
}

template <const Op& op>
std::vector<Output> weigh_gradient(const Node& node, std::span<const Output> grads) {
  return {node.graph().add(op, {grads[0], node.input(1)}).output(), {}};
}

template <class F>
KernelRun weigh_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    const kernels::Broadcast scalar(plan.input(0).shape.dims(), {});
    return [scalar](const KernelPointers& p) {
      kernels::map_broadcast(F{}, scalar, p.begin(), p.end(), p.output<T>(), p.input<T>(0),
                             p.input<T>(1));
    };
  });
}

template <class F>
KernelRun weigh_reference(KernelPlan& plan) {
  return typed_kernel(plan, []<class T>(T, const KernelPointers& p) {
    for (std::int64_t i = p.begin(); i < p.end(); ++i)
      p.output<T>()[i] = F{}(p.input<T>(0)[i], p.input<T>(1)[0]);
  });
}

}  // namespace

const Op kWeigh{.name = "Weigh",
                .inputs = 2,
                .shape = weigh_shape,
                .gradient = weigh_gradient<kWeigh>,
                .split = WorkSplit::kElements,
                .in_place = InPlace::kFirst,
                .cpu = weigh_cpu<functors::Times>,
                .reference = weigh_reference<functors::Times>};

const Op kUnweigh{.name = "Unweigh",
                  .inputs = 2,
                  .shape = weigh_shape,
                  .gradient = weigh_gradient<kUnweigh>,
                  .split = WorkSplit::kElements,
                  .in_place = InPlace::kFirst,
                  .cpu = weigh_cpu<functors::Over>,
                  .reference = weigh_reference<functors::Over>};

const Op kCounted{.name = "Counted",
                  .inputs = 2,
                  .shape = weigh_shape,
                  .gradient = weigh_gradient<kCounted>,
                  .split = WorkSplit::kElements,
                  .in_place = InPlace::kFirst,
                  .cpu = weigh_cpu<functors::Keep>,
                  .reference = weigh_reference<functors::Keep>};

Output weigh(Output x, Output weight, At at) {
  return x.graph().add(kWeigh, {x, weight}, at).output();
}
Output unweigh(Output x, Output weight, At at) {
  return x.graph().add(kUnweigh, {x, weight}, at).output();
}
Output if_counted(Output x, Output weight, At at) {
  return x.graph().add(kCounted, {x, weight}, at).output();
}

}  // namespace belfry
