#include "belfry/ops/updates/lion_update.h"

#include <cmath>

#include "belfry/ops/updates/update.h"
#include "belfry/ops/updates/update_steps.h"

namespace belfry {
namespace {

OutputTypes lion_shape(const ShapeContext& c) {
  const auto& options = c.options<LionUpdateOptions>();
  for (const double beta : {options.beta1, options.beta2}) kernels::require_beta(c, beta);
  kernels::require_decay(c, options.weight_decay, options.coupled_decay);
  return kernels::update_types(c, 2, 2, 3, options.part_from);
}

template <class T>
BELFRY_KERNEL void lion_steps(std::int64_t begin, std::int64_t end, kernels::LionStep<T> step,
                              const T* gradient, T* x, T* m) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) step(gradient[i], x[i], m[i]);
}

template <class T>
void plain_lion(std::int64_t begin, std::int64_t end, kernels::LionStep<T> step, const T* gradient,
                T* x, T* m) {
  for (std::int64_t i = begin; i < end; ++i) {
    T g = step.factor * gradient[i];
    if (step.decay != 0) g += step.decay * x[i];
    const T ahead = step.beta1 * m[i] + step.rest1 * g;
    x[i] *= step.keep;
    if (ahead != 0) x[i] -= step.rate * (std::isnan(ahead) ? ahead : std::copysign(T(1), ahead));
    m[i] = step.beta2 * m[i] + step.rest2 * g;
  }
}

template <class T>
using LionLoop = void (*)(std::int64_t, std::int64_t, kernels::LionStep<T>, const T*, T*, T*);

template <class T>
KernelRun lion_kernel(const KernelPlan& plan, LionLoop<T> loop) {
  return [options = plan.options<LionUpdateOptions>(), loop,
          size = plan.input(2).shape.elements()](const KernelPointers& p) {
    const T factor = kernels::factor_of<T>(p, 4);
    if (factor == 0) return;
    const kernels::UpdateRange range(p, options.part_from, size);
    loop(range.begin, range.end, kernels::LionStep<T>::of(options, *p.input<T>(3), factor),
         p.input<T>(2), p.written<T>(0) + range.first, p.written<T>(1));
  };
}

KernelRun lion_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(),
                        [&]<class T>(T) { return lion_kernel<T>(plan, lion_steps<T>); });
}
KernelRun lion_reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(),
                        [&]<class T>(T) { return lion_kernel<T>(plan, plain_lion<T>); });
}

}  // namespace

const Op kLionUpdate{.name = "LionUpdate",
                     .inputs = kVariadicInputs,
                     .shape = lion_shape,
                     .no_gradient = kernels::kUpdateHasNoGradient,
                     .split = WorkSplit::kElements,
                     .writes = 2,
                     .elementwise_input = 2,
                     .fused_update_on_gpus = true,
                     .cpu = lion_cpu,
                     .reference = lion_reference};

Node& lion_update(Variable variable, Variable m, ScaledGradient gradient, Output rate,
                  LionUpdateOptions options, At at) {
  return rate.graph().add(
      kLionUpdate,
      kernels::update_inputs({variable.ref(), m.ref(), gradient.value, rate}, gradient.factor), at,
      NodeOptions(options));
}

}  // namespace belfry
