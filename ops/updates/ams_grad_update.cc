#include "belfry/ops/updates/ams_grad_update.h"

#include <algorithm>
#include <cmath>

#include "belfry/ops/updates/adam_update.h"
#include "belfry/ops/updates/update.h"
#include "belfry/ops/updates/update_steps.h"

namespace belfry {
namespace {
namespace ams_grad {

// Places of inputs, after the variable, m, v and the largest v. The gradient's factor may be
// missing.
constexpr std::size_t kVariables = 4, kStep = 4, kGradient = 5, kRate = 6, kFactor = 7;

OutputTypes shape(const ShapeContext& c) {
  const auto& options = c.options<AmsGradUpdateOptions>();
  for (const double beta : {options.beta1, options.beta2}) kernels::require_beta(c, beta);
  kernels::require_epsilon(c, options.epsilon);
  kernels::require_decay(c, options.weight_decay, options.decoupled_decay);
  OutputTypes types = kernels::update_types(c, kVariables, kGradient, kRate, options.part_from);
  c.require(c.dtype(kStep) == DType::kI64 && c.input(kStep).rank() == 0, "the step is ",
            c.type(kStep), ", but a scalar i64 is needed");
  return types;
}

template <class T>
BELFRY_KERNEL void steps(std::int64_t begin, std::int64_t end, kernels::AmsGradStep<T> step,
                         const T* gradient, T* x, T* m, T* v, T* most) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) step(gradient[i], x[i], m[i], v[i], most[i]);
}

template <class T>
void plain_steps(std::int64_t begin, std::int64_t end, kernels::AmsGradStep<T> step,
                 const T* gradient, T* x, T* m, T* v, T* most) {
  const kernels::AdamStep<T>& f = step.adam;
  for (std::int64_t i = begin; i < end; ++i) {
    T g = f.factor * gradient[i];
    if (f.decay != 0) g += f.decay * x[i];
    m[i] = f.beta1 * m[i] + f.rest1 * g;
    v[i] = f.beta2 * v[i] + f.rest2 * (g * g);
    most[i] = std::isnan(v[i]) ? v[i] : std::max(most[i], v[i]);
    x[i] = f.keep * x[i] - f.rate * m[i] / (std::sqrt(most[i]) + f.epsilon);
  }
}

template <class T>
using Loop = void (*)(std::int64_t, std::int64_t, kernels::AmsGradStep<T>, const T*, T*, T*, T*,
                      T*);

template <class T>
KernelRun kernel(const KernelPlan& plan, Loop<T> loop) {
  const Node* const node = &plan.node();
  return [node, options = plan.options<AmsGradUpdateOptions>(), loop,
          size = plan.input(kGradient).shape.elements()](const KernelPointers& p) {
    const T factor = kernels::factor_of<T>(p, kFactor);
    if (factor == 0) return;
    const std::int64_t step = *p.input<std::int64_t>(kStep);
    if (step < 1) [[unlikely]]
      refuse_adam_step(*node, step);
    const kernels::UpdateRange range(p, options.part_from, size);
    loop(range.begin, range.end,
         kernels::AmsGradStep<T>::at(options, step, *p.input<T>(kRate), factor),
         p.input<T>(kGradient), p.written<T>(0) + range.first, p.written<T>(1), p.written<T>(2),
         p.written<T>(3));
  };
}

KernelRun cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) { return kernel<T>(plan, steps<T>); });
}
KernelRun reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) { return kernel<T>(plan, plain_steps<T>); });
}

}  // namespace ams_grad
}  // namespace

const Op kAmsGradUpdate{.name = "AmsGradUpdate",
                        .inputs = kVariadicInputs,
                        .shape = ams_grad::shape,
                        .no_gradient = kernels::kUpdateHasNoGradient,
                        .split = WorkSplit::kElements,
                        .writes = ams_grad::kVariables,
                        .elementwise_input = ams_grad::kGradient,
                        .fused_update_on_gpus = true,
                        .cpu = ams_grad::cpu,
                        .reference = ams_grad::reference};

Node& ams_grad_update(Variable variable, Variable m, Variable v, Variable most, Output step,
                      ScaledGradient gradient, Output rate, AmsGradUpdateOptions options, At at) {
  return rate.graph().add(kAmsGradUpdate,
                          kernels::update_inputs({variable.ref(), m.ref(), v.ref(), most.ref(),
                                                  step, gradient.value, rate},
                                                 gradient.factor),
                          at, NodeOptions(options));
}

}  // namespace belfry
