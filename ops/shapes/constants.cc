#include "belfry/ops/shapes/constants.h"

#include <cmath>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

// One number after the other: value(i), rounded to the type. Integers must be exact.
template <class Value>
Output stored_numbers(Graph& graph, Shape shape, DType dtype, At at, const Value& value) {
  Tensor tensor(std::move(shape), dtype);
  const std::size_t unit = size_of(dtype);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const Tensor one = scalar_tensor(value(i), dtype);
    std::copy_n(one.raw(), unit, tensor.mutable_raw() + static_cast<std::size_t>(i) * unit);
  }
  return constant(graph, std::move(tensor), at);
}

}  // namespace

Output zeros(Graph& graph, Shape shape, DType dtype, At at) {
  return fill(graph, std::move(shape), 0, dtype, at);
}
Output ones(Graph& graph, Shape shape, DType dtype, At at) {
  return fill(graph, std::move(shape), 1, dtype, at);
}
Output zeros_like(Output x, At at) { return fill_like(x, 0, at); }
Output ones_like(Output x, At at) { return fill_like(x, 1, at); }

Output eye(Graph& graph, std::int64_t n, DType dtype, At at) { return eye(graph, n, n, dtype, at); }
Output eye(Graph& graph, std::int64_t n, std::int64_t columns, DType dtype, At at) {
  require(n >= 0 && columns >= 0, "eye (", at.site, "): ", n, " x ", columns, " is negative");
  return stored_numbers(graph, {n, columns}, dtype, at,
                        [&](std::int64_t i) { return i / columns == i % columns ? 1.0 : 0.0; });
}

Output arange(Graph& graph, double begin, double end, double step, DType dtype, At at) {
  const double count = std::ceil((end - begin) / step);
  require(std::isfinite(count) && count < 1e12, "arange (", at.site, "): cannot go from ", begin,
          " to ", end, " by steps of ", step);
  return stored_numbers(graph, {count > 0 ? static_cast<std::int64_t>(count) : 0}, dtype, at,
                        [&](std::int64_t i) { return begin + static_cast<double>(i) * step; });
}

Output linspace(Graph& graph, double begin, double end, std::int64_t count, DType dtype, At at) {
  require(count >= 0, "linspace (", at.site, "): ", count, " numbers");
  return stored_numbers(graph, {count}, dtype, at, [&](std::int64_t i) {
    if (i == count - 1 && i > 0) return end;
    const double parts = count > 1 ? static_cast<double>(count - 1) : 1;
    return begin + (end - begin) * (static_cast<double>(i) / parts);
  });
}

Output sequence_mask(Output lengths, std::int64_t time, DType dtype, At at) {
  require(lengths.shape().rank() == 1 && !is_floating(lengths.dtype()) && time >= 0,
          "sequence_mask (", at.site, "): takes integers [n] and a time from 0, not ",
          lengths.type(), " and ", time);
  const Output places =
      arange(lengths.graph(), 0, static_cast<double>(time), 1, lengths.dtype(), at);
  return cast(less(places, reshape(lengths, {kUnknownSize, 1}, at), at), dtype, at);
}

}  // namespace belfry
