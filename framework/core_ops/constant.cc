#include "belfry/framework/core_ops/constant.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/kernels/half.h"

namespace belfry {
namespace {

OutputTypes constant_shape(const ShapeContext& c) {
  const Tensor& value = c.options<ConstantOptions>().value;
  return {{value.shape(), value.dtype()}};
}

}  // namespace

const Op kConst{.name = "Const",
                .inputs = 0,
                .shape = constant_shape,
                .no_gradient = "it has no inputs",
                .storage = true};

Output constant(Graph& graph, Tensor value, At at) {
  return graph.add(kConst, {}, at, NodeOptions(ConstantOptions{std::move(value)})).output();
}

Output constant(Graph& graph, std::initializer_list<float> values, Shape shape, At at) {
  return constant(graph, Tensor(std::move(shape), std::vector<float>(values)), at);
}

Output constant(Graph& graph, double value, DType dtype, At at) {
  return constant(graph, scalar_tensor(value, dtype), at);
}

Tensor scalar_tensor(double value, DType dtype) {
  if (is_half(dtype)) {
    Tensor half({}, dtype);
    const std::uint16_t bits = kernels::half_bits(value, dtype);
    std::memcpy(half.mutable_raw(), &bits, sizeof bits);
    return half;
  }
  return visit_any(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T rounded = static_cast<T>(value);
    require(is_floating(dtype) || static_cast<double>(rounded) == value, "the scalar ", value,
            " is not exact in ", name_of(dtype));
    return Tensor(rounded);
  });
}

}  // namespace belfry
