#include "belfry/ops/updates/momentum_update.h"

#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/updates/update.h"
#include "belfry/ops/updates/update_steps.h"

namespace belfry {
namespace {

OutputTypes momentum_shape(const ShapeContext& c) {
  const auto& options = c.options<MomentumUpdateOptions>();
  c.require(options.momentum >= 0 && options.momentum < 1, "momentum must be in [0, 1), not ",
            options.momentum);
  kernels::require_decay(c, options.weight_decay, options.decoupled_decay);
  return kernels::update_types(c, 2, 2, 3, options.part_from);
}

template <class T>
BELFRY_KERNEL void momentum_steps(std::int64_t begin, std::int64_t end,
                                  kernels::MomentumStep<T> step, const T* gradient, T* x, T* sum) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) step(gradient[i], x[i], sum[i]);
}

KernelRun momentum_cpu(KernelPlan& plan) {
  const auto& options = plan.options<MomentumUpdateOptions>();
  const std::int64_t size = plan.input(2).shape.elements();
  return typed_kernel(plan, [options, size]<class T>(T, const KernelPointers& p) {
    const T factor = kernels::factor_of<T>(p, 4);
    if (factor == 0) return;
    const kernels::UpdateRange range(p, options.part_from, size);
    momentum_steps<T>(range.begin, range.end,
                      kernels::MomentumStep<T>::of(options, *p.input<T>(3), factor), p.input<T>(2),
                      p.written<T>(0) + range.first, p.written<T>(1));
  });
}

KernelRun momentum_reference(KernelPlan& plan) {
  const auto& options = plan.options<MomentumUpdateOptions>();
  const std::int64_t size = plan.input(2).shape.elements();
  return typed_kernel(plan, [options, size]<class T>(T, const KernelPointers& p) {
    const T momentum = static_cast<T>(options.momentum);
    const T factor = kernels::factor_of<T>(p, 4);
    if (factor == 0) return;
    const T keep = kernels::kept_share(*p.input<T>(3), options.decoupled_decay);
    const kernels::UpdateRange range(p, options.part_from, size);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      T &x = p.written<T>(0)[range.first + i], &sum = p.written<T>(1)[i];
      T g = factor * p.input<T>(2)[i];
      if (options.weight_decay != 0) g += static_cast<T>(options.weight_decay) * x;
      sum = momentum * sum + g;
      if (options.form == MomentumForm::kNesterov)
        x = keep * x - *p.input<T>(3) * (g + momentum * sum);
      else
        x = keep * x - *p.input<T>(3) * sum;
    }
  });
}

}  // namespace

const Op kMomentumUpdate{.name = "MomentumUpdate",
                         .inputs = kVariadicInputs,
                         .shape = momentum_shape,
                         .no_gradient = kernels::kUpdateHasNoGradient,
                         .split = WorkSplit::kElements,
                         .writes = 2,
                         .elementwise_input = 2,
                         .fused_update_on_gpus = true,
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
