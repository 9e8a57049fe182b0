#include "belfry/ops/updates/adam_update.h"

#include <cmath>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"
#include "belfry/ops/updates/update.h"
#include "belfry/ops/updates/update_steps.h"

namespace belfry {
namespace {

// Places of inputs, after the variable, m and v. The gradient's factor may be missing.
constexpr std::size_t kVariables = 3, kStep = 3, kGradient = 4, kRate = 5, kFactor = 6;

OutputTypes adam_shape(const ShapeContext& c) {
  const auto& options = c.options<AdamUpdateOptions>();
  for (const double beta : {options.beta1, options.beta2}) kernels::require_beta(c, beta);
  kernels::require_epsilon(c, options.epsilon);
  kernels::require_decay(c, options.weight_decay.share);
  OutputTypes types = kernels::update_types(c, kVariables, kGradient, kRate, options.part_from);
  c.require(c.dtype(kStep) == DType::kI64 && c.input(kStep).rank() == 0, "the step is ",
            c.type(kStep), ", but a scalar i64 is needed");
  return types;
}

// Throws unless step >= 1.
template <class T>
kernels::AdamStep<T> checked_step(const Node& node, const AdamUpdateOptions& o, std::int64_t step,
                                  T rate, T factor) {
  if (step < 1) [[unlikely]]
    refuse_adam_step(node, step);
  return kernels::AdamStep<T>::at(o, step, rate, factor);
}

template <class T>
BELFRY_KERNEL void adam_step(std::int64_t begin, std::int64_t end, kernels::AdamStep<T> f,
                             const T* gradient, T* x, T* m, T* v) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) f(gradient[i], x[i], m[i], v[i]);
}

template <class T>
void plain_step(std::int64_t begin, std::int64_t end, kernels::AdamStep<T> f, const T* gradient,
                T* x, T* m, T* v) {
  for (std::int64_t i = begin; i < end; ++i) {
    T g = f.factor * gradient[i];
    if (f.decay != 0) g += f.decay * x[i];
    m[i] = f.beta1 * m[i] + f.rest1 * g;
    v[i] = f.beta2 * v[i] + f.rest2 * (g * g);
    x[i] = f.keep * x[i] - f.rate * m[i] / (std::sqrt(v[i]) + f.epsilon);
  }
}

template <class T>
using Step = void (*)(std::int64_t, std::int64_t, kernels::AdamStep<T>, const T*, T*, T*, T*);

template <class T>
KernelRun adam_kernel(const KernelPlan& plan, Step<T> step) {
  const Node* const node = &plan.node();
  return [node, options = plan.options<AdamUpdateOptions>(), step,
          size = plan.input(kGradient).shape.elements()](const KernelPointers& p) {
    const T factor = kernels::factor_of<T>(p, kFactor);
    if (factor == 0) return;
    const kernels::UpdateRange range(p, options.part_from, size);
    step(range.begin, range.end,
         checked_step(*node, options, *p.input<std::int64_t>(kStep), *p.input<T>(kRate), factor),
         p.input<T>(kGradient), p.written<T>(0) + range.first, p.written<T>(1), p.written<T>(2));
  };
}

KernelRun adam_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(),
                        [&]<class T>(T) { return adam_kernel<T>(plan, adam_step<T>); });
}
KernelRun adam_reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(),
                        [&]<class T>(T) { return adam_kernel<T>(plan, plain_step<T>); });
}

}  // namespace

const Op kAdamUpdate{.name = "AdamUpdate",
                     .inputs = kVariadicInputs,
                     .shape = adam_shape,
                     .no_gradient = kernels::kUpdateHasNoGradient,
                     .split = WorkSplit::kElements,
                     .writes = kVariables,
                     .elementwise_input = kGradient,
                     .fused_update_on_gpus = true,
                     .cpu = adam_cpu,
                     .reference = adam_reference};

void refuse_adam_step(const Node& node, std::int64_t step) {
  throw InvalidArgument(cat(node.describe(), ": the step is ", step, ", but counts from 1"));
}

Node& adam_update(Variable variable, Variable m, Variable v, Output step, ScaledGradient gradient,
                  Output rate, AdamUpdateOptions options, At at) {
  return rate.graph().add(
      kAdamUpdate,
      kernels::update_inputs({variable.ref(), m.ref(), v.ref(), step, gradient.value, rate},
                             gradient.factor),
      at, NodeOptions(options));
}

}  // namespace belfry
