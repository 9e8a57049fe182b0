#include "belfry/ops/transpose.h"

#include <algorithm>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/transposed.h"

namespace belfry {
namespace {

OutputTypes transpose_shape(const ShapeContext& c) {
  const auto& order = c.options<TransposeOptions>().order;
  const Shape& x = c.input(0);
  c.require(order.empty() || order.size() == x.rank(), "an order of ", order.size(),
            " dimensions does not fit ", x);
  if (!order.empty()) checked_axes(c, order, x.rank());
  Shape out = x;
  const std::vector<std::size_t> axes = source_axes(order, x.rank());
  for (std::size_t i = 0; i < axes.size(); ++i) out[i] = x[axes[i]];
  return {out};
}

std::vector<Output> transpose_gradient(const Node& node, std::span<const Output> grads) {
  const std::vector<std::size_t> axes =
      source_axes(node.options<TransposeOptions>().order, node.input(0).shape().rank());
  std::vector<int> inverse(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) inverse[axes[i]] = static_cast<int>(i);
  return {transpose(grads[0], inverse)};
}

using Dim = TransposedDim;

// Copies a plane in tiles, so that lines of both sides stay in cache while they are used.
template <class Bits>
BELFRY_KERNEL void copy_plane(const Bits* from, Bits* to, Dim outer, Dim inner) {
  constexpr std::int64_t kTile = 16;
  for (std::int64_t r = 0; r < outer.size; r += kTile) {
    const std::int64_t r_end = r + kTile < outer.size ? r + kTile : outer.size;
    for (std::int64_t c = 0; c < inner.size; c += kTile) {
      const std::int64_t c_end = c + kTile < inner.size ? c + kTile : inner.size;
      for (std::int64_t i = r; i < r_end; ++i)
        for (std::int64_t j = c; j < c_end; ++j)
          to[i * outer.to + j * inner.to] = from[i * outer.from + j * inner.from];
    }
  }
}

template <class Bits>
BELFRY_KERNEL void copy_rows(const Bits* from, Bits* to, Dim outer, Dim inner) {
  for (std::int64_t i = 0; i < outer.size; ++i)
    for (std::int64_t j = 0; j < inner.size; ++j) to[i * outer.to + j] = from[i * outer.from + j];
}

// Copies `rows` of dimension 0, the innermost dimension and `partner` as planes.
template <class Bits>
struct Copy {
  std::vector<Dim> dims;
  std::size_t partner;

  void operator()(std::size_t depth, std::int64_t rows, const Bits* from, Bits* to) const {
    if (depth == partner) ++depth;
    if (depth + 1 < dims.size()) {
      for (std::int64_t i = 0; i < size(depth, rows); ++i)
        (*this)(depth + 1, rows, from + i * dims[depth].from, to + i * dims[depth].to);
      return;
    }
    const Dim outer{size(partner, rows), dims[partner].from, dims[partner].to};
    if (dims.back().from == 1)
      copy_rows(from, to, outer, dims.back());
    else
      copy_plane(from, to, outer, dims.back());
  }

  std::int64_t size(std::size_t depth, std::int64_t rows) const {
    return depth == 0 ? rows : dims[depth].size;
  }
};

template <class Bits>
KernelRun transpose_as(const KernelPlan& plan) {
  const std::vector<Dim> dims = transposed_dims(plan.input(0).shape, plan.output().shape,
                                                plan.options<TransposeOptions>().order);
  // A plane has the dimension that is dense in the output and the one that is dense in the input.
  std::size_t partner = dims.size() - 2;
  for (std::size_t i = 0; i + 1 < dims.size(); ++i)
    if (dims[i].from < dims[partner].from) partner = i;
  return [copy = Copy<Bits>{dims, partner}](const KernelPointers& p) {
    copy(0, p.end() - p.begin(), p.input<Bits>(0) + p.begin() * copy.dims[0].from,
         p.output<Bits>() + p.begin() * copy.dims[0].to);
  };
}

KernelRun transpose_cpu(KernelPlan& plan) {
  switch (size_of(plan.dtype())) {
    case 1: return transpose_as<std::uint8_t>(plan);
    case 4: return transpose_as<std::uint32_t>(plan);
    default: return transpose_as<std::uint64_t>(plan);
  }
}

Sharding transpose_shards(const ShardContext& c) {
  const auto& order = c.node.options<TransposeOptions>().order;
  const std::size_t rank = c.inputs[0].shape.rank();
  return rank > 0 && source_axes(order, rank)[0] == 0 ? row_shards(c, 1) : Sharding();
}

// Finds the place of each element in the input from its indices.
KernelRun transpose_reference(KernelPlan& plan) {
  const auto unit = static_cast<std::int64_t>(size_of(plan.dtype()));
  const Shape& x = plan.input(0).shape;
  const Shape& out = plan.output().shape;
  const std::int64_t row = out.rank() == 0 ? 1 : out.product(1, out.rank());
  return [=, axes = source_axes(plan.options<TransposeOptions>().order, x.rank())](
             const KernelPointers& p) {
    for (std::int64_t i = p.begin() * row; i < p.end() * row; ++i) {
      std::int64_t rest = i, from = 0;
      for (std::size_t d = axes.size(); d-- > 0; rest /= out[d])
        from += rest % out[d] * x.product(axes[d] + 1, x.rank());
      std::copy_n(p.input<char>(0) + from * unit, unit, p.output<char>() + i * unit);
    }
  };
}

}  // namespace

const Op kTranspose{.name = "Transpose",
                    .inputs = 1,
                    .shape = transpose_shape,
                    .gradient = transpose_gradient,
                    .split = WorkSplit::kRows,
                    .shards = transpose_shards,
                    .cpu = transpose_cpu,
                    .reference = transpose_reference};
const StoredOptions<TransposeOptions> kStoredTranspose(kTranspose);

Output transpose(Output x, std::vector<int> order, At at) {
  return x.graph()
      .add(kTranspose, {x}, at, NodeOptions(TransposeOptions{std::move(order)}))
      .output();
}

}  // namespace belfry
