#include "belfry/ops/broadcast_to.h"

#include <algorithm>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/broadcasting.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sum_to.h"

namespace belfry {

Shape BroadcastAlongOptions::before(Shape like) const {
  for (const int axis : axes) like[static_cast<std::size_t>(axis)] = 1;
  return like;
}

double BroadcastAlongOptions::repetitions(const Shape& like) const {
  double count = 1;
  for (const int axis : axes) count *= static_cast<double>(like[static_cast<std::size_t>(axis)]);
  return count;
}

namespace {

OutputTypes broadcast_to_shape(const ShapeContext& c) {
  c.require_same_dtype();
  const Shape& like = c.input(1);
  c.require(broadcast_shapes(c, c.input(0), like).compatible(like), c.input(0),
            " cannot be repeated to ", like);
  return {like};
}

OutputTypes broadcast_along_shape(const ShapeContext& c) {
  c.require_same_dtype();
  const auto& options = c.options<BroadcastAlongOptions>();
  const auto& axes = options.axes;
  const Shape& like = c.input(1);
  if (!axes.empty()) checked_axes(c, axes, like.rank());
  const Shape ones = options.before(like);
  c.require(!c.input(0).is_fully_known() || !ones.is_fully_known() ||
                c.input(0).elements() == ones.elements(),
            c.input(0), " cannot be repeated to ", like, " along axes [", join(axes), "]");
  return {like};
}

std::vector<Output> broadcast_to_gradient(const Node& node, std::span<const Output> grads) {
  return {sum_to(grads[0], node.input(0), node.input(1).shape()), {}};
}

std::vector<Output> broadcast_along_gradient(const Node& node, std::span<const Output> grads) {
  const auto& [axes, values] = node.options<BroadcastAlongOptions>();
  if (axes.empty()) return {grads[0], {}};
  const auto reduce = [&](Output x) {
    return values == BroadcastValues::kShare ? reduce_mean(x, axes) : reduce_sum(x, axes);
  };
  return {reshape_like(reduce(grads[0]), node.input(0)), {}};
}

// Elements are opaque bits: only their size matters.
template <class Bits>
KernelRun repeat(const Shape& x, const Shape& like) {
  return [broadcast = kernels::Broadcast(x.dims(), like.dims())](const KernelPointers& p) {
    kernels::map_broadcast(functors::First{}, broadcast, p.begin(), p.end(), p.output<Bits>(),
                           p.input<Bits>(0), p.input<Bits>(1));
  };
}

KernelRun repeat_any(const KernelPlan& plan, const Shape& x) {
  const Shape& like = plan.output().shape;
  switch (size_of(plan.dtype())) {
    case 1: return repeat<std::uint8_t>(x, like);
    case 4: return repeat<std::uint32_t>(x, like);
    default: return repeat<std::uint64_t>(x, like);
  }
}

bool along_batch(const Node& node) {
  return std::ranges::count(node.options<BroadcastAlongOptions>().axes, 0) > 0;
}

// How often an element is repeated, over all shards of the device.
double repetitions(const KernelPlan& plan) {
  const double here = plan.options<BroadcastAlongOptions>().repetitions(plan.output().shape);
  return along_batch(plan.node()) ? plan.of_all(here) : here;
}

Sharding along_shards(const ShardContext& c) { return row_shards(c, along_batch(c.node) ? 2 : 3); }

KernelRun broadcast_to_cpu(KernelPlan& plan) { return repeat_any(plan, plan.input(0).shape); }

KernelRun broadcast_along_cpu(KernelPlan& plan) {
  const auto& options = plan.options<BroadcastAlongOptions>();
  const Shape& like = plan.output().shape;
  const Shape x = options.before(like);
  if (options.values == BroadcastValues::kRepeat) return repeat_any(plan, x);
  const double count = repetitions(plan);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [broadcast = kernels::Broadcast(x.dims(), like.dims()),
            f = functors::FirstOver<T>{static_cast<T>(count)}](const KernelPointers& p) {
      kernels::map_broadcast(f, broadcast, p.begin(), p.end(), p.output<T>(), p.input<T>(0),
                             p.input<T>(1));
    };
  });
}

KernelRun plain_repeat(const KernelPlan& plan, const Shape& x, double count) {
  return visit_numeric(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [x, out = plan.output().shape, count = static_cast<T>(count)](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.output<T>()[i] = p.input<T>(0)[broadcast_index(i, out, x)] / count;
    };
  });
}

KernelRun broadcast_to_reference(KernelPlan& plan) {
  return plain_repeat(plan, plan.input(0).shape, 1);
}

KernelRun broadcast_along_reference(KernelPlan& plan) {
  const auto& options = plan.options<BroadcastAlongOptions>();
  const Shape& like = plan.output().shape;
  const bool share = options.values == BroadcastValues::kShare;
  return plain_repeat(plan, options.before(like), share ? repetitions(plan) : 1);
}

}  // namespace

const Op kBroadcastTo{.name = "BroadcastTo",
                      .inputs = 2,
                      .shape = broadcast_to_shape,
                      .gradient = broadcast_to_gradient,
                      .split = WorkSplit::kElements,
                      .shards = pointwise_shards,
                      .cpu = broadcast_to_cpu,
                      .reference = broadcast_to_reference};
const Op kBroadcastAlong{.name = "BroadcastAlong",
                         .inputs = 2,
                         .shape = broadcast_along_shape,
                         .gradient = broadcast_along_gradient,
                         .split = WorkSplit::kElements,
                         .shards = along_shards,
                         .cpu = broadcast_along_cpu,
                         .reference = broadcast_along_reference};
const StoredOptions<BroadcastAlongOptions> kStoredBroadcastAlong(kBroadcastAlong);

Output broadcast_to(Output x, Output like, At at) {
  return x.graph().add(kBroadcastTo, {x, like}, at).output();
}

Output broadcast_along(Output x, Output like, std::vector<int> axes, BroadcastValues values,
                       At at) {
  NodeOptions options(BroadcastAlongOptions{std::move(axes), values});
  return x.graph().add(kBroadcastAlong, {x, like}, at, std::move(options)).output();
}

}  // namespace belfry
