// The functors of an activation, for hosts and GPUs.
#pragma once
#include "belfry/ops/pointwise/activations.h"
#include "belfry/ops/pointwise/functors_impl.h"

namespace belfry {

// Calls f with the functor, or with that of the derivative.
template <class F>
auto visit_activation(const ActivationOptions& options, const F& f) {
  const double parameter = options.parameter;
  switch (options.function) {
    case ActivationFunction::kLeakyRelu: return f(functors::LeakyRelu{parameter});
    case ActivationFunction::kElu: return f(functors::Elu{parameter});
    case ActivationFunction::kHardSwish: return f(functors::HardSwish{parameter});
    case ActivationFunction::kHardSigmoid: return f(functors::HardSigmoid{parameter});
    default: return f(functors::Softplus{parameter});
  }
}
template <class F>
auto visit_derivative(const ActivationOptions& options, const F& f) {
  const double parameter = options.parameter;
  switch (options.function) {
    case ActivationFunction::kLeakyRelu: return f(functors::LeakyReluGrad{parameter});
    case ActivationFunction::kElu: return f(functors::EluGrad{parameter});
    case ActivationFunction::kHardSwish: return f(functors::HardSwishGrad{parameter});
    case ActivationFunction::kHardSigmoid: return f(functors::HardSigmoidGrad{parameter});
    default: return f(functors::SoftplusGrad{parameter});
  }
}

}  // namespace belfry
