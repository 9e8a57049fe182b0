#include "belfry/framework/core_ops/initializers.h"

#include <cmath>
#include <utility>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/random.h"

namespace belfry {
namespace {

// Fan-in and fan-out.
std::pair<double, double> fans(const Shape& shape, WeightAxes axes) {
  const std::size_t rank = shape.rank();
  if (rank < 2) {
    const auto n = static_cast<double>(shape.elements());
    return {n, n};
  }
  if (rank == 2 || axes == WeightAxes::kMatrices)
    return {static_cast<double>(shape[rank - 2]), static_cast<double>(shape[rank - 1])};
  const auto window = static_cast<double>(shape.product(1, rank - 1));
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

Initializer truncated_normal(double stddev) {
  return [stddev](Graph& graph, const Shape& shape, DType dtype) {
    return graph
        .add(kRandomNormal, {}, {},
             NodeOptions(RandomNormalOptions{
                 .shape = shape, .stddev = stddev, .dtype = dtype, .truncated = true}))
        .output();
  };
}

Initializer glorot_uniform(WeightAxes axes) {
  return [axes](Graph& graph, const Shape& shape, DType dtype) {
    const auto [in, out] = fans(shape, axes);
    const double limit = std::sqrt(6 / (in + out));
    return random_uniform(graph, shape, -limit, limit, dtype);
  };
}

Initializer he_normal(WeightAxes axes) {
  return [axes](Graph& graph, const Shape& shape, DType dtype) {
    return random_normal(graph, shape, std::sqrt(2 / fans(shape, axes).first), dtype);
  };
}

}  // namespace init

Initializer default_initializer(DType dtype) {
  return is_floating(dtype) ? init::glorot_uniform() : init::zeros();
}

}  // namespace belfry
