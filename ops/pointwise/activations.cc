#include "belfry/ops/pointwise/activations.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/framework/kernels/pointwise.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/activations_impl.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/pointwise/maximum.h"
#include "belfry/ops/pointwise/sign.h"
#include "belfry/ops/pointwise/where.h"
#include "belfry/ops/sigmoid.h"

namespace belfry {
namespace {

OutputTypes activate_shape(const ShapeContext& c) {
  const auto& [function, parameter] = c.options<ActivationOptions>();
  c.require(std::isfinite(parameter), "its parameter is ", parameter);
  c.require(function != ActivationFunction::kSoftplus || parameter > 0, "beta is ", parameter,
            ", but must be positive");
  return floating_pointwise(c);
}

Output activate_grad(Output dy, Output x, const Node& of) {
  return dy.graph().add(kActivateGrad, {dy, x}, {}, of.raw_options()).output();
}

std::vector<Output> activate_gradient(const Node& node, std::span<const Output> grads) {
  return {activate_grad(grads[0], node.input(0), node)};
}

// Empty where it is 0.
Output second_derivative(const ActivationOptions& options, Output x) {
  const double parameter = options.parameter;
  switch (options.function) {
    case ActivationFunction::kElu:
      return where(greater(x, 0.0), 0.0, exp(minimum(x, 0.0)) * parameter);
    case ActivationFunction::kHardSwish: return cast(less(abs(x), 3.0), x.dtype()) * (1.0 / 3);
    case ActivationFunction::kSoftplus: {
      const Output z = x * parameter;
      return sigmoid(z) * sigmoid(-z) * parameter;  // 1 - sigmoid(z) would lose small results
    }
    default: return {};
  }
}

std::vector<Output> activate_grad_gradient(const Node& node, std::span<const Output> grads) {
  const Output dy = node.input(0), x = node.input(1);
  const Output second = second_derivative(node.options<ActivationOptions>(), x);
  return {activate_grad(grads[0], x, node), second ? second * dy * grads[0] : Output()};
}

KernelRun activate_cpu(KernelPlan& plan) {
  return visit_activation(plan.options<ActivationOptions>(), [&](auto f) {
    return typed_kernel(plan, [f]<class T>(T, const KernelPointers& p) {
      kernels::map(f, p.begin(), p.end(), p.output<T>(), p.input<T>(0));
    });
  });
}

KernelRun activate_grad_cpu(KernelPlan& plan) {
  return visit_derivative(plan.options<ActivationOptions>(), [&](auto f) {
    return typed_kernel(plan, [f]<class T>(T, const KernelPointers& p) {
      kernels::map(f, p.begin(), p.end(), p.output<T>(), p.input<T>(0), p.input<T>(1));
    });
  });
}

template <class T>
T plain_gate(T x) {
  return std::isnan(x) ? x : std::clamp<T>(x + 3, 0, 6) / 6;
}

template <class T>
T plain_activation(const ActivationOptions& options, T x) {
  const T parameter = static_cast<T>(options.parameter);
  switch (options.function) {
    case ActivationFunction::kLeakyRelu: return x > 0 ? x : parameter * x;
    case ActivationFunction::kElu: return x > 0 ? x : parameter * std::expm1(x);
    case ActivationFunction::kHardSwish: return x * plain_gate(x);
    case ActivationFunction::kHardSigmoid: return plain_gate(x);
    default: return (std::log1p(std::exp(-std::abs(parameter * x))) / parameter) + (x > 0 ? x : 0);
  }
}

template <class T>
T plain_derivative(const ActivationOptions& options, T x) {
  const T parameter = static_cast<T>(options.parameter);
  if (std::isnan(x)) return x;
  switch (options.function) {
    case ActivationFunction::kLeakyRelu: return x > 0 ? 1 : parameter;
    case ActivationFunction::kElu: return x > 0 ? 1 : parameter * std::exp(x);
    case ActivationFunction::kHardSwish: return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + T(0.5);
    case ActivationFunction::kHardSigmoid: return std::abs(x) < 3 ? T(1) / 6 : 0;
    default: return 1 / (1 + std::exp(-parameter * x));
  }
}

KernelRun activate_reference(KernelPlan& plan) {
  const auto& options = plan.options<ActivationOptions>();
  return typed_kernel(plan, [options]<class T>(T, const KernelPointers& p) {
    for (std::int64_t i = p.begin(); i < p.end(); ++i)
      p.output<T>()[i] = plain_activation(options, p.input<T>(0)[i]);
  });
}

KernelRun activate_grad_reference(KernelPlan& plan) {
  const auto& options = plan.options<ActivationOptions>();
  return typed_kernel(plan, [options]<class T>(T, const KernelPointers& p) {
    for (std::int64_t i = p.begin(); i < p.end(); ++i)
      p.output<T>()[i] = p.input<T>(0)[i] * plain_derivative(options, p.input<T>(1)[i]);
  });
}

Output activate(Output x, ActivationOptions options, const At& at) {
  return x.graph().add(kActivate, {x}, at, NodeOptions(options)).output();
}

}  // namespace

const Op kActivate{.name = "Activate",
                   .inputs = 1,
                   .shape = activate_shape,
                   .gradient = activate_gradient,
                   .split = WorkSplit::kElements,
                   .shards = pointwise_shards,
                   .in_place = InPlace::kFirst,
                   .cpu = activate_cpu,
                   .reference = activate_reference};
const Op kActivateGrad{.name = "ActivateGrad",
                       .inputs = 2,
                       .shape = activate_shape,
                       .gradient = activate_grad_gradient,
                       .split = WorkSplit::kElements,
                       .shards = pointwise_shards,
                       .in_place = InPlace::kAny,
                       .cpu = activate_grad_cpu,
                       .reference = activate_grad_reference};
const StoredOptions<ActivationOptions> kStoredActivate(kActivate, kActivateGrad);

Output leaky_relu(Output x, double slope, At at) {
  return activate(x, {ActivationFunction::kLeakyRelu, slope}, at);
}
Output elu(Output x, double alpha, At at) {
  return activate(x, {ActivationFunction::kElu, alpha}, at);
}
Output hard_sigmoid(Output x, At at) { return activate(x, {ActivationFunction::kHardSigmoid}, at); }
Output hard_swish(Output x, At at) { return activate(x, {ActivationFunction::kHardSwish}, at); }
Output softplus(Output x, double beta, At at) {
  return activate(x, {ActivationFunction::kSoftplus, beta}, at);
}

}  // namespace belfry
