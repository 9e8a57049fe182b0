#include "belfry/ops/updates/momentum_update.h"

#include "belfry/ops/updates/update.h"
#include "belfry/ops/updates/update_steps.h"

namespace belfry {
namespace {

OutputTypes momentum_shape(const ShapeContext& c) {
  const double momentum = c.options<MomentumUpdateOptions>().momentum;
  c.require(momentum >= 0 && momentum < 1, "momentum must be in [0, 1), not ", momentum);
  return kernels::update_types(c, 2, 2, 3);
}

template <class T>
BELFRY_KERNEL void momentum_steps(std::int64_t begin, std::int64_t end,
                                  kernels::MomentumStep<T> step, const T* gradient, T* x, T* sum) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) step(gradient[i], x[i], sum[i]);
}

KernelRun momentum_cpu(KernelPlan& plan) {
  const double momentum = plan.options<MomentumUpdateOptions>().momentum;
  return visit_floating(plan.dtype(), [momentum]<class T>(T) -> KernelRun {
    return [momentum](const Pointers& p) {
      const T factor = kernels::factor_of<T>(p, 4);
      if (factor == 0) return;
      momentum_steps<T>(p.begin(), p.end(), {static_cast<T>(momentum), *p.input<T>(3), factor},
                        p.input<T>(2), p.written<T>(0), p.written<T>(1));
    };
  });
}

KernelRun momentum_reference(KernelPlan& plan) {
  const double momentum = plan.options<MomentumUpdateOptions>().momentum;
  return visit_floating(plan.dtype(), [momentum]<class T>(T) -> KernelRun {
    return [momentum](const Pointers& p) {
      const T factor = kernels::factor_of<T>(p, 4);
      if (factor == 0) return;
      for (std::int64_t i = p.begin(); i < p.end(); ++i) {
        T& sum = p.written<T>(1)[i];
        sum = static_cast<T>(momentum) * sum + factor * p.input<T>(2)[i];
        p.written<T>(0)[i] -= *p.input<T>(3) * sum;
      }
    };
  });
}

}  // namespace

const Op kMomentumUpdate{.name = "MomentumUpdate",
                         .inputs = kVariadic,
                         .shape = momentum_shape,
                         .no_gradient = kernels::kUpdateHasNoGradient,
                         .split = WorkSplit::kElements,
                         .writes = 2,
                         .elementwise_input = 2,
                         .fuses_on_gpus = true,
                         .cpu = momentum_cpu,
                         .reference = momentum_reference};

Node& momentum_update(Variable variable, Variable sum, ScaledGradient gradient, Output rate,
                      MomentumUpdateOptions options, At at) {
  return rate.graph().add(
      kMomentumUpdate,
      kernels::update_inputs({variable.ref(), sum.ref(), gradient.value, rate}, gradient.factor),
      at, NodeOptions(options));
}

}  // namespace belfry
