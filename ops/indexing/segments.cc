#include "belfry/ops/indexing/segments.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/kernels/combine_rows.h"
#include "belfry/ops/kernels/ids.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/maximum.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

OutputTypes segment_shape(const ShapeContext& c) {
  const Shape &values = c.input(0), &ids = c.input(1);
  const std::int64_t segments = c.options<SegmentOptions>().segments;
  c.require(segments >= 0, "cannot make ", segments, " segments");
  require_arithmetic(c);
  require_ids(c);
  std::vector<std::int64_t> first = values.dims();
  first.resize(std::min(first.size(), ids.rank()));
  c.require(Shape(first).compatible(ids), "the ids are ", ids,
            ", but have to be the first dimensions of the values, ", values);
  std::vector<std::int64_t> dims = values.dims();
  dims.erase(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(ids.rank()));
  dims.insert(dims.begin(), segments);
  return {Shape(dims)};
}

// Inputs: values, ids, and the largest value of each segment.
OutputTypes segment_shares_shape(const ShapeContext& c) {
  c.require_floating(0);
  const Shape largest = segment_shape(c)[0].shape;
  c.require(c.dtype(2) == c.dtype() && c.input(2).compatible(largest), "the largest values are ",
            c.type(2), ", but must be ", TensorType{largest, c.dtype()});
  return {c.type(0)};
}

std::vector<Output> segment_sum_gradient(const Node& node, std::span<const Output> grads) {
  return {gather(grads[0], node.input(1)), {}};
}

std::vector<Output> segment_max_gradient(const Node& node, std::span<const Output> grads) {
  const Output values = node.input(0), ids = node.input(1);
  NodeOptions options(node.options<SegmentOptions>());
  const Output shares =
      values.graph()
          .add(kSegmentShares, {values, ids, node.output()}, {}, std::move(options))
          .output();
  return {gather(grads[0], ids) * shares, {}};
}

// Which values are the largest is constant almost everywhere.
std::vector<Output> no_change(const Node&, std::span<const Output>) { return {{}, {}, {}}; }

// Rows and their segments, as kernels count them.
struct SegmentSizes {
  explicit SegmentSizes(const KernelPlan& plan)
      : count(plan.input(1).shape.elements()), segments(plan.options<SegmentOptions>().segments) {
    const Shape& values = plan.input(0).shape;
    width = values.product(plan.input(1).shape.rank(), values.rank());
  }
  template <class Id>
  void check(const Id* ids, const Node& node) const {
    for (std::int64_t i = 0; i < count; ++i)
      if (ids[i] < 0 || ids[i] >= segments)
        refuse_id(node, static_cast<std::int64_t>(ids[i]), segments);
  }

  std::int64_t count, segments, width;
};

// Calls f(T{}, Id{}) with the types of values and ids.
template <class F>
KernelRun visit_segments(const KernelPlan& plan, F f) {
  return visit_numeric(plan.dtype(), [&]<class T>(T value) -> KernelRun {
    return visit_ids(plan.input(1).dtype, [&]<class Id>(Id id) { return f(value, id); });
  });
}

template <class F>
KernelRun segments_cpu(KernelPlan& plan) {
  return visit_segments(plan, [&]<class T, class Id>(T, Id) -> KernelRun {
    return [size = SegmentSizes(plan), &node = plan.node()](const KernelPointers& p) {
      const Id* const ids = p.input<Id>(1);
      size.check(ids, node);
      std::fill_n(p.output<T>(), size.segments * size.width, F::template kNone<T>);
      kernels::combine_rows(F{}, p.input<T>(0), ids, size.count, size.width, p.output<T>());
    };
  });
}
template <class F>
KernelRun segments_reference(KernelPlan& plan) {
  return visit_segments(plan, [&]<class T, class Id>(T, Id) -> KernelRun {
    return [size = SegmentSizes(plan), &node = plan.node()](const KernelPointers& p) {
      const Id* const ids = p.input<Id>(1);
      size.check(ids, node);
      std::fill_n(p.output<T>(), size.segments * size.width, F::template kNone<T>);
      kernels::plain_combine_rows(F{}, p.input<T>(0), ids, size.count, size.width, p.output<T>());
    };
  });
}

// The share of each value in the largest of its segment: 0, or 1 over the number of equal ones.
KernelRun segment_shares(KernelPlan& plan) {
  const SegmentSizes size(plan);
  plan.workspace(size.segments * size.width * 8);
  return visit_segments(plan, [&]<class T, class Id>(T, Id) -> KernelRun {
    return [size, &node = plan.node()](const KernelPointers& p) {
      const T* const values = p.input<T>(0);
      auto* const ties = reinterpret_cast<std::int64_t*>(p.workspace());
      size.check(p.input<Id>(1), node);
      std::fill_n(ties, size.segments * size.width, 0);
      const auto segment_of = [&](std::int64_t i) {
        return static_cast<std::int64_t>(p.input<Id>(1)[i / size.width]) * size.width +
               i % size.width;
      };
      const auto is_largest = [&](std::int64_t i) {
        return values[i] == p.input<T>(2)[segment_of(i)];
      };
      for (std::int64_t i = 0; i < size.count * size.width; ++i)
        ties[segment_of(i)] += is_largest(i) ? 1 : 0;
      for (std::int64_t i = 0; i < size.count * size.width; ++i)
        p.output<T>()[i] =
            T(1) / static_cast<T>(ties[segment_of(i)]) * (is_largest(i) ? T(1) : T(0));
    };
  });
}

}  // namespace

const Op kSegmentSum{.name = "SegmentSum",
                     .inputs = 2,
                     .shape = segment_shape,
                     .gradient = segment_sum_gradient,
                     .heavy = true,
                     .shards = to_sums<3>,
                     .cpu = segments_cpu<kernels::AddRows>,
                     .reference = segments_reference<kernels::AddRows>,
                     .autocast = Autocast::kFull};

const Op kSegmentMax{.name = "SegmentMax",
                     .inputs = 2,
                     .shape = segment_shape,
                     .gradient = segment_max_gradient,
                     .heavy = true,
                     .cpu = segments_cpu<kernels::LargestRows>,
                     .reference = segments_reference<kernels::LargestRows>};
const Op kSegmentShares{.name = "SegmentShares",
                        .inputs = 3,
                        .shape = segment_shares_shape,
                        .gradient = no_change,
                        .heavy = true,
                        .reference = segment_shares};
const StoredOptions<SegmentOptions> kStoredSegmentSum(kSegmentSum, kSegmentMax, kSegmentShares);

Output segment_sum(Output values, Output ids, std::int64_t segments, At at) {
  NodeOptions options(SegmentOptions{segments});
  return values.graph().add(kSegmentSum, {values, ids}, at, std::move(options)).output();
}

Output segment_max(Output values, Output ids, std::int64_t segments, At at) {
  NodeOptions options(SegmentOptions{segments});
  return values.graph().add(kSegmentMax, {values, ids}, at, std::move(options)).output();
}

Output segment_mean(Output values, Output ids, std::int64_t segments, At at) {
  const DType dtype = values.dtype(), wide = is_half(dtype) ? DType::kF32 : dtype;
  require(is_floating(dtype), "segment_mean (", at.site, "): the values are ", name_of(dtype),
          ", but must be floating point; cast them");
  const Output sums = segment_sum(cast(values, wide, at), ids, segments, at);
  const Output counts = segment_sum(cast(fill_like(ids, 1, at), wide, at), ids, segments, at);
  std::vector<std::int64_t> dims(sums.shape().rank(), 1);
  dims[0] = segments;
  const Output divisor = maximum(counts, Operand(1, at.site), at);
  return cast(Operand(sums, at.site) / reshape(divisor, Shape(dims), at), dtype, at);
}

}  // namespace belfry
