#include "belfry/ops/gather.h"

#include <algorithm>
#include <cstring>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/gather_impl.h"
#include "belfry/ops/kernels/bits.h"
#include "belfry/ops/kernels/combine_rows.h"
#include "belfry/ops/kernels/ids.h"
#include "belfry/ops/kernels/pointwise_op.h"

namespace belfry {
namespace {

// The type of what the ids of input 1 name in input `table`.
TensorType type_of_rows(const ShapeContext& c, std::size_t table) {
  const auto& [axis, batch_dims] = c.options<GatherOptions>();
  const Shape &x = c.input(table), &ids = c.input(1);
  c.require(x.rank() >= 1, "the table is a scalar, but has to have rows");
  require_ids(c);
  const std::size_t at = checked_axis(c, axis, x.rank());
  c.require(batch_dims >= 0 && batch_dims <= static_cast<int>(std::min(at, ids.rank())),
            "batch_dims is ", batch_dims, ", but must be from 0 to the axis, ", at,
            ", and to the rank of the ids, ", ids.rank());
  const auto batch = static_cast<std::size_t>(batch_dims);
  std::vector<std::int64_t> dims;
  for (std::size_t i = 0; i < at; ++i) {
    const bool known = i >= batch || x[i] != kUnknownSize;
    c.require(i >= batch || Shape{x[i]}.compatible(Shape{ids[i]}), "dimension ", i, " of ", x,
              " and of the ids ", ids, " must be the same");
    dims.push_back(known ? x[i] : ids[i]);
  }
  for (std::size_t i = batch; i < ids.rank(); ++i) dims.push_back(ids[i]);
  for (std::size_t i = at + 1; i < x.rank(); ++i) dims.push_back(x[i]);
  return {Shape(dims), c.dtype(table)};
}

OutputTypes gather_shape(const ShapeContext& c) { return {type_of_rows(c, 0)}; }

// Inputs: the gradient of the gathered rows, the ids, the table.
OutputTypes gather_grad_shape(const ShapeContext& c) {
  const TensorType rows = type_of_rows(c, 2);
  require_arithmetic(c);
  c.require(c.dtype(0) == rows.dtype && c.input(0).compatible(rows.shape),
            "what is added to rows is ", c.type(0), ", but they are ", rows);
  return {c.type(2)};
}

std::vector<Output> gather_gradient(const Node& node, std::span<const Output> grads) {
  return {gather_grad(grads[0], node.input(1), node.input(0), node.options<GatherOptions>()), {}};
}

std::vector<Output> gather_grad_gradient(const Node& node, std::span<const Output> grads) {
  return {gather(grads[0], node.input(1), node.options<GatherOptions>()), {}, {}};
}

// Which inputs have the samples of a batch as their rows: the ids of a whole table; all, if each
// sample has ids of its own; all but the ids, if they are the same for all samples.
bool is_table(const ShardContext& c, std::size_t table) {
  const auto& options = c.node.options<GatherOptions>();
  return from_end(options.axis, c.inputs[table].shape.rank()) == 0;
}
bool is_batched(const ShardContext& c) { return c.node.options<GatherOptions>().batch_dims > 0; }

Sharding gather_shards(const ShardContext& c) {
  return row_shards(c, is_table(c, 0) ? 2 : is_batched(c) ? 3 : 1);
}

Sharding gather_grad_shards(const ShardContext& c) {
  if (is_table(c, 2)) return sum_shards(c, 3);
  return row_shards(c, is_batched(c) ? 7 : 5);
}

void check_id(std::int64_t id, std::int64_t rows, const Node& node) {
  if (id < 0 || id >= rows) [[unlikely]]
    refuse_id(node, id, rows);
}

// Elements [p.begin(), p.end()) of the output. The range may begin and end within a row.
template <class Bits, class Id>
void gather_rows(const KernelPointers& p, const GatherSizes& size, const Node& node) {
  if (p.begin() == p.end()) return;
  const auto& [batches, middle, rows, width, count] = size;
  std::int64_t column = p.begin() % width, k = p.begin() / width % count;
  std::int64_t table = p.begin() / width / count;
  const Id* ids = p.input<Id>(1) + table / middle * count;
  for (std::int64_t i = p.begin(); i < p.end(); column = 0) {
    const std::int64_t n = std::min(width - column, p.end() - i);
    const auto id = static_cast<std::int64_t>(ids[k]);
    check_id(id, rows, node);
    std::memcpy(p.output<Bits>() + i, p.input<Bits>(0) + (table * rows + id) * width + column,
                static_cast<std::size_t>(n) * sizeof(Bits));
    i += n;
    if (++k < count) continue;
    k = 0;
    ids = p.input<Id>(1) + ++table / middle * count;
  }
}

// The same for rows of one element.
template <class Bits, class Id>
void gather_elements(const KernelPointers& p, const GatherSizes& size, const Node& node) {
  const std::int64_t rows = size.rows, count = size.count;
  for (std::int64_t i = p.begin(); i < p.end();) {
    const std::int64_t table = i / count, end = std::min((table + 1) * count, p.end());
    const Id* const ids = p.input<Id>(1) + table / size.middle * count - table * count;
    const Bits* const from = p.input<Bits>(0) + table * rows;
    Bits* const to = p.output<Bits>();
    for (; i < end; ++i) {
      const auto id = static_cast<std::int64_t>(ids[i]);
      check_id(id, rows, node);
      to[i] = from[id];
    }
  }
}

KernelRun gather_kernel(KernelPlan& plan) {
  const GatherSizes size(plan.options<GatherOptions>(), plan.input(0).shape, plan.input(1).shape);
  return visit_bits(plan.dtype(), [&]<class Bits>(Bits) -> KernelRun {
    return visit_ids(plan.input(1).dtype, [&]<class Id>(Id) -> KernelRun {
      return [size, &node = plan.node()](const KernelPointers& p) {
        if (size.width == 1)
          gather_elements<Bits, Id>(p, size, node);
        else
          gather_rows<Bits, Id>(p, size, node);
      };
    });
  });
}

// Calls add(rows, ids, count, width, table) for each table after a check that all ids are rows of
// it.
template <class Add>
KernelRun gather_grad_kernel(const KernelPlan& plan, Add add) {
  const GatherSizes size(plan.options<GatherOptions>(), plan.output().shape, plan.input(1).shape);
  return visit_numeric(plan.dtype(), [&]<class T>(T) {
    return visit_ids(plan.input(1).dtype, [&]<class Id>(Id) -> KernelRun {
      return [size, add, &node = plan.node()](const KernelPointers& p) {
        const Id* const ids = p.input<Id>(1);
        const auto& [batches, middle, rows, width, count] = size;
        for (std::int64_t i = 0; i < batches * count; ++i) check_id(ids[i], rows, node);
        std::fill_n(p.output<T>(), batches * middle * rows * width, T(0));
        for (std::int64_t table = 0; table < batches * middle; ++table)
          add(p.input<T>(0) + table * count * width, ids + table / middle * count, count, width,
              p.output<T>() + table * rows * width);
      };
    });
  });
}

KernelRun gather_grad_cpu(KernelPlan& plan) {
  return gather_grad_kernel(
      plan, [](auto... arguments) { kernels::combine_rows(kernels::AddRows{}, arguments...); });
}
KernelRun gather_grad_reference(KernelPlan& plan) {
  return gather_grad_kernel(plan, [](auto... arguments) {
    kernels::plain_combine_rows(kernels::AddRows{}, arguments...);
  });
}

}  // namespace

const Op kGather{.name = "Gather",
                 .inputs = 2,
                 .shape = gather_shape,
                 .gradient = gather_gradient,
                 .split = WorkSplit::kElements,
                 .shards = gather_shards,
                 .reference = gather_kernel,
                 .half = true};
const Op kGatherGrad{.name = "GatherGrad",
                     .inputs = 3,
                     .shape = gather_grad_shape,
                     .gradient = gather_grad_gradient,
                     .heavy = true,
                     .shards = gather_grad_shards,
                     .cpu = gather_grad_cpu,
                     .reference = gather_grad_reference};
const StoredOptions<GatherOptions> kStoredGather(kGather, kGatherGrad);

void refuse_id(const Node& node, std::int64_t id, std::int64_t rows) {
  throw InvalidArgument(cat(node.describe(), ": id ", id, " is not in [0, ", rows, ")"));
}

Output gather(Output table, Output ids, At at) { return gather(table, ids, {.axis = 0}, at); }

Output gather(Output x, Output ids, GatherOptions options, At at) {
  return x.graph().add(kGather, {x, ids}, at, NodeOptions(options)).output();
}

Output gather_grad(Output dy, Output ids, Output like, GatherOptions options, At at) {
  return dy.graph().add(kGatherGrad, {dy, ids, like}, at, NodeOptions(options)).output();
}

}  // namespace belfry
