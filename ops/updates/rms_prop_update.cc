#include "belfry/ops/updates/rms_prop_update.h"

#include <cmath>

#include "belfry/ops/updates/update.h"
#include "belfry/ops/updates/update_steps.h"

namespace belfry {
namespace {

OutputTypes rms_prop_shape(const ShapeContext& c) {
  const auto& options = c.options<RmsPropUpdateOptions>();
  c.require(options.alpha >= 0 && options.alpha <= 1, "alpha must be in [0, 1], not ",
            options.alpha);
  c.require(options.momentum >= 0 && options.momentum < 1, "momentum must be in [0, 1), not ",
            options.momentum);
  kernels::require_epsilon(c, options.epsilon);
  kernels::require_decay(c, options.weight_decay, options.decoupled_decay);
  return kernels::update_types(c, 3, 3, 4, options.part_from);
}

template <class T>
BELFRY_KERNEL void rms_prop_steps(std::int64_t begin, std::int64_t end,
                                  kernels::RmsPropStep<T> step, const T* gradient, T* x, T* square,
                                  T* sum) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) step(gradient[i], x[i], square[i], sum[i]);
}

template <class T>
void plain_rms_prop(std::int64_t begin, std::int64_t end, kernels::RmsPropStep<T> step,
                    const T* gradient, T* x, T* square, T* sum) {
  for (std::int64_t i = begin; i < end; ++i) {
    T g = step.factor * gradient[i];
    if (step.decay != 0) g += step.decay * x[i];
    square[i] = step.alpha * square[i] + step.rest * (g * g);
    sum[i] = step.momentum * sum[i] + g / (std::sqrt(square[i]) + step.epsilon);
    x[i] = step.keep * x[i] - step.rate * sum[i];
  }
}

template <class T>
using RmsPropLoop = void (*)(std::int64_t, std::int64_t, kernels::RmsPropStep<T>, const T*, T*, T*,
                             T*);

template <class T>
KernelRun rms_prop_kernel(const KernelPlan& plan, RmsPropLoop<T> loop) {
  return [options = plan.options<RmsPropUpdateOptions>(), loop,
          size = plan.input(3).shape.elements()](const KernelPointers& p) {
    const T factor = kernels::factor_of<T>(p, 5);
    if (factor == 0) return;
    const kernels::UpdateRange range(p, options.part_from, size);
    loop(range.begin, range.end, kernels::RmsPropStep<T>::of(options, *p.input<T>(4), factor),
         p.input<T>(3), p.written<T>(0) + range.first, p.written<T>(1), p.written<T>(2));
  };
}

KernelRun rms_prop_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(),
                        [&]<class T>(T) { return rms_prop_kernel<T>(plan, rms_prop_steps<T>); });
}
KernelRun rms_prop_reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(),
                        [&]<class T>(T) { return rms_prop_kernel<T>(plan, plain_rms_prop<T>); });
}

}  // namespace

const Op kRmsPropUpdate{.name = "RmsPropUpdate",
                        .inputs = kVariadicInputs,
                        .shape = rms_prop_shape,
                        .no_gradient = kernels::kUpdateHasNoGradient,
                        .split = WorkSplit::kElements,
                        .writes = 3,
                        .elementwise_input = 3,
                        .fused_update_on_gpus = true,
                        .cpu = rms_prop_cpu,
                        .reference = rms_prop_reference};

Node& rms_prop_update(Variable variable, Variable square, Variable sum, ScaledGradient gradient,
                      Output rate, RmsPropUpdateOptions options, At at) {
  return rate.graph().add(
      kRmsPropUpdate,
      kernels::update_inputs({variable.ref(), square.ref(), sum.ref(), gradient.value, rate},
                             gradient.factor),
      at, NodeOptions(options));
}

}  // namespace belfry
