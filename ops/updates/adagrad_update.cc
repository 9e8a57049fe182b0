#include "belfry/ops/updates/adagrad_update.h"

#include <cmath>

#include "belfry/ops/updates/update.h"
#include "belfry/ops/updates/update_steps.h"

namespace belfry {
namespace {

OutputTypes adagrad_shape(const ShapeContext& c) {
  const auto& options = c.options<AdagradUpdateOptions>();
  kernels::require_epsilon(c, options.epsilon);
  kernels::require_decay(c, options.weight_decay, options.decoupled_decay);
  return kernels::update_types(c, 2, 2, 3, options.part_from);
}

template <class T>
BELFRY_KERNEL void adagrad_steps(std::int64_t begin, std::int64_t end, kernels::AdagradStep<T> step,
                                 const T* gradient, T* x, T* square) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) step(gradient[i], x[i], square[i]);
}

template <class T>
void plain_adagrad(std::int64_t begin, std::int64_t end, kernels::AdagradStep<T> step,
                   const T* gradient, T* x, T* square) {
  for (std::int64_t i = begin; i < end; ++i) {
    T g = step.factor * gradient[i];
    if (step.decay != 0) g += step.decay * x[i];
    square[i] += g * g;
    x[i] = step.keep * x[i] - step.rate * g / (std::sqrt(square[i]) + step.epsilon);
  }
}

template <class T>
using AdagradLoop = void (*)(std::int64_t, std::int64_t, kernels::AdagradStep<T>, const T*, T*, T*);

template <class T>
KernelRun adagrad_kernel(const KernelPlan& plan, AdagradLoop<T> loop) {
  return [options = plan.options<AdagradUpdateOptions>(), loop,
          size = plan.input(2).shape.elements()](const KernelPointers& p) {
    const T factor = kernels::factor_of<T>(p, 4);
    if (factor == 0) return;
    const kernels::UpdateRange range(p, options.part_from, size);
    loop(range.begin, range.end, kernels::AdagradStep<T>::of(options, *p.input<T>(3), factor),
         p.input<T>(2), p.written<T>(0) + range.first, p.written<T>(1));
  };
}

KernelRun adagrad_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(),
                        [&]<class T>(T) { return adagrad_kernel<T>(plan, adagrad_steps<T>); });
}
KernelRun adagrad_reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(),
                        [&]<class T>(T) { return adagrad_kernel<T>(plan, plain_adagrad<T>); });
}

}  // namespace

const Op kAdagradUpdate{.name = "AdagradUpdate",
                        .inputs = kVariadicInputs,
                        .shape = adagrad_shape,
                        .no_gradient = kernels::kUpdateHasNoGradient,
                        .split = WorkSplit::kElements,
                        .writes = 2,
                        .elementwise_input = 2,
                        .fused_update_on_gpus = true,
                        .cpu = adagrad_cpu,
                        .reference = adagrad_reference};

Node& adagrad_update(Variable variable, Variable square, ScaledGradient gradient, Output rate,
                     AdagradUpdateOptions options, At at) {
  return rate.graph().add(
      kAdagradUpdate,
      kernels::update_inputs({variable.ref(), square.ref(), gradient.value, rate}, gradient.factor),
      at, NodeOptions(options));
}

}  // namespace belfry
