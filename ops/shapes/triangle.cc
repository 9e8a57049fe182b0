#include "belfry/ops/shapes/triangle.h"

#include <algorithm>
#include <cstring>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/shapes/triangle_impl.h"

namespace belfry {
namespace {

OutputTypes triangle_shape(const ShapeContext& c) {
  c.require(c.input(0).rank() >= 2, "needs matrices [..., m, n], not ", c.input(0));
  return {c.type(0)};
}

std::vector<Output> triangle_gradient(const Node& node, std::span<const Output> grads) {
  return {node.graph()
              .add(kTriangle, grads, {}, NodeOptions(node.options<TriangleOptions>()))
              .output()};
}

// Dimension 0 of a single matrix says which elements are kept.
Sharding triangle_shards(const ShardContext& c) {
  return c.inputs[0].shape.rank() == 2 ? Sharding() : row_shards(c, 1);
}

// Matrix rows of the parts of a launch.
std::int64_t rows_of_part(const Shape& x) { return x.product(1, x.rank() - 1); }

KernelRun triangle_cpu(KernelPlan& plan) {
  const TriangleRows rows(plan.output().shape, plan.options<TriangleOptions>());
  return [rows, per_part = rows_of_part(plan.output().shape),
          unit = size_of(plan.dtype())](const KernelPointers& p) {
    const auto bytes = [&](std::int64_t count) { return static_cast<std::size_t>(count) * unit; };
    for (std::int64_t r = p.begin() * per_part; r < p.end() * per_part; ++r) {
      const auto [begin, end] = rows.kept(r);
      const char* const from = p.input<char>(0) + bytes(r * rows.n);
      char* const to = p.output<char>() + bytes(r * rows.n);
      std::memset(to, 0, bytes(begin));
      std::memmove(to + bytes(begin), from + bytes(begin), bytes(end - begin));
      std::memset(to + bytes(end), 0, bytes(rows.n - end));
    }
  };
}

KernelRun triangle_reference(KernelPlan& plan) {
  const Shape& x = plan.output().shape;
  const std::int64_t m = x[x.rank() - 2], n = x.back(), part = x.product(1, x.rank());
  return [=, options = plan.options<TriangleOptions>(),
          unit = size_of(plan.dtype())](const KernelPointers& p) {
    for (std::int64_t i = p.begin() * part; i < p.end() * part; ++i) {
      const std::int64_t above = i % n - i / n % m - options.diagonal;
      char* const to = p.output<char>() + static_cast<std::size_t>(i) * unit;
      if (options.upper ? above >= 0 : above <= 0)
        std::memmove(to, p.input<char>(0) + static_cast<std::size_t>(i) * unit, unit);
      else
        std::memset(to, 0, unit);
    }
  };
}

Output triangle_of(Output x, TriangleOptions options, At at) {
  return x.graph().add(kTriangle, {x}, at, NodeOptions(options)).output();
}

}  // namespace

const Op kTriangle{.name = "Triangle",
                   .inputs = 1,
                   .shape = triangle_shape,
                   .gradient = triangle_gradient,
                   .split = WorkSplit::kRows,
                   .shards = triangle_shards,
                   .in_place = InPlace::kFirst,
                   .cpu = triangle_cpu,
                   .reference = triangle_reference,
                   .half = true};
const StoredOptions<TriangleOptions> kStoredTriangle(kTriangle);

Output tril(Output x, std::int64_t diagonal, At at) {
  return triangle_of(x, {.diagonal = diagonal}, at);
}
Output triu(Output x, std::int64_t diagonal, At at) {
  return triangle_of(x, {.upper = true, .diagonal = diagonal}, at);
}

}  // namespace belfry
