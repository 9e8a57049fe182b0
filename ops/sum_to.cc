#include "belfry/ops/sum_to.h"

#include <algorithm>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/broadcast_to.h"
#include "belfry/ops/kernels/broadcasting.h"
#include "belfry/ops/kernels/reduction.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"

namespace belfry {

std::vector<bool> repeated_axes(const Shape& x, const Shape& like) {
  std::vector<bool> repeated(x.rank());
  for (std::size_t axis = 0; axis < x.rank(); ++axis) {
    const std::size_t missing = x.rank() - like.rank();
    repeated[axis] = axis < missing || (like[axis - missing] == 1 && x[axis] != 1);
  }
  return repeated;
}

namespace {

OutputTypes sum_to_shape(const ShapeContext& c) {
  c.require_same_dtype();
  c.require_floating(0);
  const Shape& x = c.input(0);
  const Shape& like = c.input(1);
  c.require(like.rank() <= x.rank() && broadcast_shapes(c, x, like).compatible(x), x,
            " is no result of broadcasting ", like);
  return {like};
}

std::vector<Output> sum_to_gradient(const Node& node, std::span<const Output> grads) {
  return {broadcast_to(grads[0], node.input(0)), {}};
}

// If rows are added up, shards have partial sums; else shards have their rows.
Sharding sum_to_shards(const ShardContext& c) {
  const Shape &x = c.inputs[0].shape, &like = c.inputs[1].shape;
  if (x.rank() == 0) return {};
  return repeated_axes(x, like)[0] ? sum_shards(c, 1) : row_shards(c, 3);
}

KernelRun sum_to_cpu(KernelPlan& plan) {
  const Shape& x = plan.input(0).shape;
  const Reduction reduction(x, repeated_axes(x, plan.output().shape));
  plan.workspace(reduction.workspace() * static_cast<std::int64_t>(size_of(plan.dtype())));
  const bool keeps_rows = x.rank() > 0 && !repeated_axes(x, plan.output().shape)[0];
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [reduction, rows = keeps_rows ? x[0] : 1](const KernelPointers& p) {
      reduction(p.input<T>(0), p.output<T>(), reinterpret_cast<T*>(p.workspace()), 0, rows);
    };
  });
}

KernelRun sum_to_reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    plan.workspace(plan.output().shape.elements() * 8);
    return [x = plan.input(0).shape, like = plan.output().shape](const KernelPointers& p) {
      auto* const sums = reinterpret_cast<double*>(p.workspace());
      std::fill_n(sums, like.elements(), 0.0);
      for (std::int64_t i = 0; i < x.elements(); ++i)
        sums[broadcast_index(i, x, like)] += static_cast<double>(p.input<T>(0)[i]);
      for (std::int64_t i = 0; i < like.elements(); ++i) p.output<T>()[i] = static_cast<T>(sums[i]);
    };
  });
}

// The axes along which `like` was repeated, as far as they are known when the graph is built.
struct Repeated {
  std::vector<int> axes;
  bool certain = true;
};

Repeated find_repeated(const Shape& x, const Shape& like, const Shape& other) {
  Repeated found;
  for (std::size_t back = 1; back <= x.rank(); ++back) {
    const int axis = static_cast<int>(x.rank() - back);
    const std::int64_t own = back <= like.rank() ? like[like.rank() - back] : 1;
    const std::int64_t others = back <= other.rank() ? other[other.rank() - back] : 1;
    if (back > like.rank() || (own == 1 && others != 1)) found.axes.push_back(axis);
    if (own == kUnknownSize && others != 1) found.certain = false;
  }
  return found;
}

}  // namespace

const Op kSumTo{.name = "SumTo",
                .inputs = 2,
                .shape = sum_to_shape,
                .gradient = sum_to_gradient,
                .shards = sum_to_shards,
                .cpu = sum_to_cpu,
                .reference = sum_to_reference};

Output sum_to(Output x, Output like, const Shape& other, At at) {
  const Repeated repeated = find_repeated(x.shape(), like.shape(), other);
  if (!repeated.certain) return x.graph().add(kSumTo, {x, like}, at).output();
  if (repeated.axes.empty()) return x;
  const Output sum = reduce_sum(x, repeated.axes, at);
  const bool only_missing = sum.shape().rank() == like.shape().rank();
  return only_missing ? sum : reshape_like(sum, like);
}

}  // namespace belfry
