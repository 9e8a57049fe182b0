#include "belfry/ops/momentum_update.h"

#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/kernels/update.h"

namespace belfry {
namespace {

OutputTypes momentum_shape(const ShapeContext& c) {
  const double momentum = c.options<MomentumUpdateOptions>().momentum;
  c.require(momentum >= 0 && momentum < 1, "momentum must be in [0, 1), not ", momentum);
  return kernels::update_types(c, 2, 2, 3);
}

template <class T>
BELFRY_KERNEL void momentum_step(std::int64_t begin, std::int64_t end, T momentum, T rate,
                                 const T* gradient, T* x, T* sum) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) {
    sum[i] = momentum * sum[i] + gradient[i];
    x[i] = x[i] - rate * sum[i];
  }
}

KernelRun momentum_cpu(KernelPlan& plan) {
  const double momentum = plan.options<MomentumUpdateOptions>().momentum;
  return visit_floating(plan.dtype(), [momentum]<class T>(T) -> KernelRun {
    return [momentum](const Pointers& p) {
      momentum_step(p.begin(), p.end(), static_cast<T>(momentum), *p.input<T>(3), p.input<T>(2),
                    p.written<T>(0), p.written<T>(1));
    };
  });
}

KernelRun momentum_reference(KernelPlan& plan) {
  const double momentum = plan.options<MomentumUpdateOptions>().momentum;
  return visit_floating(plan.dtype(), [momentum]<class T>(T) -> KernelRun {
    return [momentum](const Pointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i) {
        T& sum = p.written<T>(1)[i];
        sum = static_cast<T>(momentum) * sum + p.input<T>(2)[i];
        p.written<T>(0)[i] -= *p.input<T>(3) * sum;
      }
    };
  });
}

}  // namespace

const Op kMomentumUpdate{.name = "MomentumUpdate",
                         .inputs = 4,
                         .shape = momentum_shape,
                         .no_gradient = kernels::kUpdateHasNoGradient,
                         .split = Split::kElements,
                         .writes = 2,
                         .elementwise_input = 2,
                         .cpu = momentum_cpu,
                         .reference = momentum_reference};

Node& momentum_update(Variable variable, Variable sum, Output gradient, Output rate,
                      MomentumUpdateOptions options, At at) {
  return gradient.graph().add(kMomentumUpdate, {variable.ref(), sum.ref(), gradient, rate}, at,
                              Options(options));
}

}  // namespace belfry
