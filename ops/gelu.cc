#include "belfry/ops/gelu.h"

#include <cmath>
#include <numbers>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/bias_activation.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/sigmoid.h"
#include "belfry/ops/square.h"

namespace belfry {
namespace {

Output gelu_grad(Output dy, Output x, const Node& of) {
  return dy.graph().add(kGeluGrad, {dy, x}, {}, of.raw_options()).output();
}

std::vector<Output> gelu_gradient(const Node& node, std::span<const Output> grads) {
  return {gelu_grad(grads[0], node.input(0), node)};
}

// y = x F(x), where F' = f is the density of the normal distribution and f' = -x f.
Output exact_second_derivative(Output x) {
  const Output square_x = square(x);
  return (2.0 - square_x) * exp(square_x * -0.5) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
}

// y = x s(v), where s is the sigmoid and v = slope (x + bend x^3).
Output tanh_second_derivative(Output x) {
  const double slope = functors::GeluTanh::kSlope, bend = functors::GeluTanh::kBend;
  const Output square_x = square(x), s = sigmoid(x * (slope + slope * bend * square_x));
  const Output dv = slope + 3 * slope * bend * square_x, ddv = x * (6 * slope * bend);
  return s * (1.0 - s) * (2.0 * dv + x * ((1.0 - 2.0 * s) * square(dv) + ddv));
}

std::vector<Output> gelu_grad_gradient(const Node& node, std::span<const Output> grads) {
  const Output dy = node.input(0), x = node.input(1);
  const Output second = node.options<GeluOptions>().form == GeluForm::kExact
                            ? exact_second_derivative(x)
                            : tanh_second_derivative(x);
  return {gelu_grad(grads[0], x, node), second * dy * grads[0]};
}

// The two forms are two functors.
template <CpuKernel exact, CpuKernel by_tanh>
KernelRun gelu_kernel(KernelPlan& plan) {
  return plan.options<GeluOptions>().form == GeluForm::kExact ? exact(plan) : by_tanh(plan);
}

struct PlainGelu {
  template <class T>
  T operator()(T x) const {
    return x / 2 * std::erfc(-x / std::numbers::sqrt2_v<T>);
  }
};

struct PlainGeluGrad {
  template <class T>
  T operator()(T dy, T x) const {
    const T density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<T>);
    return dy * (std::erfc(-x / std::numbers::sqrt2_v<T>) / 2 + x * density);
  }
};

// The argument of tanh.
template <class T>
T bent(T x) {
  return std::sqrt(2 / std::numbers::pi_v<T>) * (x + T(0.044715) * x * x * x);
}

struct PlainGeluTanh {
  template <class T>
  T operator()(T x) const {
    return x / 2 * (1 + std::tanh(bent(x)));
  }
};

struct PlainGeluTanhGrad {
  template <class T>
  T operator()(T dy, T x) const {
    const T t = std::tanh(bent(x));
    const T inner = std::sqrt(2 / std::numbers::pi_v<T>) * (1 + 3 * T(0.044715) * x * x);
    return dy * ((1 + t) / 2 + x / 2 * (1 - t * t) * inner);
  }
};

}  // namespace

const Op kGelu{.name = "Gelu",
               .inputs = 1,
               .shape = floating_pointwise,
               .gradient = gelu_gradient,
               .split = WorkSplit::kElements,
               .shards = pointwise_shards,
               .fuse = fuse_bias,
               .in_place = InPlace::kFirst,
               .cpu = gelu_kernel<unary<functors::Gelu>, unary<functors::GeluTanh>>,
               .reference = gelu_kernel<plain_unary<PlainGelu>, plain_unary<PlainGeluTanh>>};
const Op kGeluGrad{
    .name = "GeluGrad",
    .inputs = 2,
    .shape = floating_pointwise,
    .gradient = gelu_grad_gradient,
    .split = WorkSplit::kElements,
    .shards = pointwise_shards,
    .fuse = fuse_bias_gradient,
    .in_place = InPlace::kAny,
    .cpu = gelu_kernel<binary<functors::GeluGrad>, binary<functors::GeluTanhGrad>>,
    .reference = gelu_kernel<plain_binary<PlainGeluGrad>, plain_binary<PlainGeluTanhGrad>>};
const StoredOptions<GeluOptions> kStoredGelu(kGelu, kGeluGrad);

Output gelu(Output x, GeluOptions options, At at) {
  return x.graph().add(kGelu, {x}, at, NodeOptions(options)).output();
}

}  // namespace belfry
