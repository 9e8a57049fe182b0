#include "belfry/framework/core_ops/initializers.h"

#include <cmath>
#include <utility>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/random.h"

namespace belfry {
namespace {

// Fan-in and fan-out: [in, out] matrices, [out, kh, kw, in] filters.
std::pair<double, double> fans(const Shape& shape) {
  if (shape.rank() < 2) {
    const auto n = static_cast<double>(shape.elements());
    return {n, n};
  }
  if (shape.rank() == 2) return {static_cast<double>(shape[0]), static_cast<double>(shape[1])};
  const auto window = static_cast<double>(shape.product(1, shape.rank() - 1));
  return {static_cast<double>(shape.back()) * window, static_cast<double>(shape[0]) * window};
}

}  // namespace

namespace init {

Initializer constant(double value) {
  return [value](Graph& graph, const Shape& shape, DType dtype) {
    return fill(graph, shape, value, dtype);
  };
}
Initializer zeros() { return constant(0); }
Initializer ones() { return constant(1); }

Initializer value(Tensor tensor) {
  return [tensor](Graph& graph, const Shape&, DType) { return belfry::constant(graph, tensor); };
}

Initializer uniform(double low, double high) {
  return [low, high](Graph& graph, const Shape& shape, DType dtype) {
    return random_uniform(graph, shape, low, high, dtype);
  };
}

Initializer normal(double stddev) {
  return [stddev](Graph& graph, const Shape& shape, DType dtype) {
    return random_normal(graph, shape, stddev, dtype);
  };
}

Initializer glorot_uniform() {
  return [](Graph& graph, const Shape& shape, DType dtype) {
    const auto [in, out] = fans(shape);
    const double limit = std::sqrt(6 / (in + out));
    return random_uniform(graph, shape, -limit, limit, dtype);
  };
}

Initializer he_normal() {
  return [](Graph& graph, const Shape& shape, DType dtype) {
    return random_normal(graph, shape, std::sqrt(2 / fans(shape).first), dtype);
  };
}

}  // namespace init

Initializer default_initializer(DType dtype) {
  return is_floating(dtype) ? init::glorot_uniform() : init::zeros();
}

}  // namespace belfry
