#include "belfry/ops/updates/sgd_update.h"

#include "belfry/ops/updates/update.h"
#include "belfry/ops/updates/update_steps.h"

namespace belfry {
namespace {

OutputTypes sgd_shape(const ShapeContext& c) { return kernels::update_types(c, 1, 1, 2); }

template <class T>
BELFRY_KERNEL void sgd_steps(std::int64_t begin, std::int64_t end, kernels::SgdStep<T> step,
                             const T* gradient, T* x) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) step(gradient[i], x[i]);
}

KernelRun sgd_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(), []<class T>(T) -> KernelRun {
    return [](const Pointers& p) {
      const T factor = kernels::factor_of<T>(p, 3);
      if (factor == 0) return;
      sgd_steps<T>(p.begin(), p.end(), {*p.input<T>(2), factor}, p.input<T>(1), p.written<T>(0));
    };
  });
}

KernelRun sgd_reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(), []<class T>(T) -> KernelRun {
    return [](const Pointers& p) {
      const T factor = kernels::factor_of<T>(p, 3);
      if (factor == 0) return;
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.written<T>(0)[i] -= *p.input<T>(2) * (factor * p.input<T>(1)[i]);
    };
  });
}

}  // namespace

const Op kSgdUpdate{.name = "SgdUpdate",
                    .inputs = kVariadic,
                    .shape = sgd_shape,
                    .no_gradient = kernels::kUpdateHasNoGradient,
                    .split = WorkSplit::kElements,
                    .writes = 1,
                    .elementwise_input = 1,
                    .fuses_on_gpus = true,
                    .cpu = sgd_cpu,
                    .reference = sgd_reference};

Node& sgd_update(Variable variable, ScaledGradient gradient, Output rate, At at) {
  return rate.graph().add(
      kSgdUpdate, kernels::update_inputs({variable.ref(), gradient.value, rate}, gradient.factor),
      at);
}

}  // namespace belfry
