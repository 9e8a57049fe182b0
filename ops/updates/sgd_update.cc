#include "belfry/ops/updates/sgd_update.h"

#include "belfry/ops/updates/update.h"
#include "belfry/ops/updates/update_steps.h"

namespace belfry {
namespace {

OutputTypes sgd_shape(const ShapeContext& c) {
  const auto& options = c.options<SgdUpdateOptions>();
  kernels::require_decay(c, options.weight_decay, options.decoupled_decay);
  return kernels::update_types(c, 1, 1, 2, options.part_from);
}

template <class T>
BELFRY_KERNEL void sgd_steps(std::int64_t begin, std::int64_t end, kernels::SgdStep<T> step,
                             const T* gradient, T* x) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) step(gradient[i], x[i]);
}

KernelRun sgd_cpu(KernelPlan& plan) {
  const auto& options = plan.options<SgdUpdateOptions>();
  const std::int64_t size = plan.input(1).shape.elements();
  return visit_floating(plan.dtype(), [options, size]<class T>(T) -> KernelRun {
    return [options, size](const KernelPointers& p) {
      const T factor = kernels::factor_of<T>(p, 3);
      if (factor == 0) return;
      const kernels::UpdateRange range(p, options.part_from, size);
      sgd_steps<T>(range.begin, range.end, kernels::SgdStep<T>::of(options, *p.input<T>(2), factor),
                   p.input<T>(1), p.written<T>(0) + range.first);
    };
  });
}

KernelRun sgd_reference(KernelPlan& plan) {
  const auto& options = plan.options<SgdUpdateOptions>();
  const std::int64_t size = plan.input(1).shape.elements();
  return visit_floating(plan.dtype(), [options, size]<class T>(T) -> KernelRun {
    return [options, size, decay = static_cast<T>(options.weight_decay)](const KernelPointers& p) {
      const T factor = kernels::factor_of<T>(p, 3);
      if (factor == 0) return;
      const T keep = kernels::kept_share(*p.input<T>(2), options.decoupled_decay);
      const kernels::UpdateRange range(p, options.part_from, size);
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        T& x = p.written<T>(0)[range.first + i];
        T g = factor * p.input<T>(1)[i];
        if (decay != 0) g += decay * x;
        x = keep * x - *p.input<T>(2) * g;
      }
    };
  });
}

}  // namespace

const Op kSgdUpdate{.name = "SgdUpdate",
                    .inputs = kVariadicInputs,
                    .shape = sgd_shape,
                    .no_gradient = kernels::kUpdateHasNoGradient,
                    .split = WorkSplit::kElements,
                    .writes = 1,
                    .elementwise_input = 1,
                    .fused_update_on_gpus = true,
                    .cpu = sgd_cpu,
                    .reference = sgd_reference};

Node& sgd_update(Variable variable, ScaledGradient gradient, Output rate, SgdUpdateOptions options,
                 At at) {
  return rate.graph().add(
      kSgdUpdate, kernels::update_inputs({variable.ref(), gradient.value, rate}, gradient.factor),
      at, NodeOptions(options));
}

}  // namespace belfry
