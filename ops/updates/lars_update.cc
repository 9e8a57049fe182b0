#include "belfry/ops/updates/lars_update.h"

#include <cmath>

#include "belfry/ops/updates/update.h"
#include "belfry/ops/updates/update_steps.h"

namespace belfry {
namespace {
namespace lars {

// Places of inputs, after the variable and the sum. The gradient's factor may be missing.
constexpr std::size_t kNorms = 2, kGradient = 4, kRate = 5, kFactor = 6;

OutputTypes shape(const ShapeContext& c) {
  const auto& options = c.options<LarsUpdateOptions>();
  c.require(options.momentum >= 0 && options.momentum < 1, "momentum must be in [0, 1), not ",
            options.momentum);
  c.require(options.coefficient > 0 && std::isfinite(options.coefficient),
            "the trust coefficient must be a finite number > 0, not ", options.coefficient);
  kernels::require_epsilon(c, options.epsilon);
  kernels::require_decay(c, options.weight_decay);
  OutputTypes types = kernels::update_types(c, 2, kGradient, kRate, options.part_from);
  for (std::size_t i = kNorms; i < kGradient; ++i)
    c.require(c.dtype(i) == DType::kF64 && c.input(i).rank() == 0, "the norm is ", c.type(i),
              ", but a scalar f64 is needed");
  return types;
}

template <class T>
BELFRY_KERNEL void steps(std::int64_t begin, std::int64_t end, kernels::LarsStep<T> step,
                         const T* gradient, T* x, T* sum) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) step(gradient[i], x[i], sum[i]);
}

template <class T>
void plain_steps(std::int64_t begin, std::int64_t end, kernels::LarsStep<T> step, const T* gradient,
                 T* x, T* sum) {
  for (std::int64_t i = begin; i < end; ++i) {
    T g = step.factor * gradient[i];
    if (step.decay != 0) g += step.decay * x[i];
    g *= step.ratio;
    sum[i] = step.momentum * sum[i] + g;
    x[i] -= step.rate * (step.nesterov ? g + step.momentum * sum[i] : sum[i]);
  }
}

template <class T>
using Loop = void (*)(std::int64_t, std::int64_t, kernels::LarsStep<T>, const T*, T*, T*);

template <class T>
KernelRun kernel(const KernelPlan& plan, Loop<T> loop) {
  return [options = plan.options<LarsUpdateOptions>(), loop,
          size = plan.input(kGradient).shape.elements()](const KernelPointers& p) {
    const T factor = kernels::factor_of<T>(p, kFactor);
    if (factor == 0) return;
    const kernels::UpdateRange range(p, options.part_from, size);
    loop(range.begin, range.end,
         kernels::LarsStep<T>::of(options, *p.input<double>(kNorms), *p.input<double>(kNorms + 1),
                                  *p.input<T>(kRate), factor),
         p.input<T>(kGradient), p.written<T>(0) + range.first, p.written<T>(1));
  };
}

KernelRun cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) { return kernel<T>(plan, steps<T>); });
}
KernelRun reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) { return kernel<T>(plan, plain_steps<T>); });
}

}  // namespace lars
}  // namespace

const Op kLarsUpdate{.name = "LarsUpdate",
                     .inputs = kVariadicInputs,
                     .shape = lars::shape,
                     .no_gradient = kernels::kUpdateHasNoGradient,
                     .split = WorkSplit::kElements,
                     .writes = 2,
                     .elementwise_input = lars::kGradient,
                     .fused_update_on_gpus = true,
                     .cpu = lars::cpu,
                     .reference = lars::reference};

Node& lars_update(Variable variable, Variable sum, Output variable_norm, Output gradient_norm,
                  ScaledGradient gradient, Output rate, LarsUpdateOptions options, At at) {
  return rate.graph().add(kLarsUpdate,
                          kernels::update_inputs({variable.ref(), sum.ref(), variable_norm,
                                                  gradient_norm, gradient.value, rate},
                                                 gradient.factor),
                          at, NodeOptions(options));
}

}  // namespace belfry
