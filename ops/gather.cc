#include "belfry/ops/gather.h"

#include <algorithm>
#include <cstring>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

OutputTypes gather_shape(const ShapeContext& c) {
  const Shape& table = c.input(0);
  c.require(table.rank() >= 1, "the table is a scalar, but has to have rows");
  c.require(c.dtype(1) == DType::kI32 || c.dtype(1) == DType::kI64, "the ids are ",
            name_of(c.dtype(1)), ", but must be i32 or i64");
  std::vector<std::int64_t> dims = c.input(1).dims();
  dims.insert(dims.end(), table.dims().begin() + 1, table.dims().end());
  return {{Shape(dims), c.dtype(0)}};
}

// Inputs: the gradient of what was gathered, the ids, the table.
OutputTypes gather_grad_shape(const ShapeContext& c) { return {c.type(2)}; }

std::vector<Output> gather_gradient(const Node& node, std::span<const Output> grads) {
  Output dy = grads[0], table = node.input(0), ids = node.input(1);
  if (ids.shape().rank() == 0) {
    std::vector<std::int64_t> dims = dy.shape().dims();
    dims.insert(dims.begin(), 1);
    dy = reshape(dy, Shape(dims));
    ids = reshape(ids, {1});
  }
  return {dy.graph().add(kGatherGrad, {dy, ids, table}).output(), {}};
}

std::vector<Output> gather_grad_gradient(const Node& node, std::span<const Output> grads) {
  return {gather(grads[0], node.input(1)), {}, {}};
}

// Calls f(id type) for the dtype of ids.
template <class F>
KernelRun visit_ids(DType dtype, F f) {
  return dtype == DType::kI32 ? f(std::int32_t{}) : f(std::int64_t{});
}

void check_id(std::int64_t id, std::int64_t rows, const Node& node) {
  if (id < 0 || id >= rows) [[unlikely]]
    refuse_id(node, id, rows);
}

KernelRun gather_kernel(KernelPlan& plan) {
  const Shape& table = plan.input(0).shape;
  const std::int64_t rows = table[0], width = table.product(1, table.rank());
  const auto unit = static_cast<std::int64_t>(size_of(plan.dtype()));
  return visit_ids(plan.input(1).dtype, [&]<class Id>(Id) -> KernelRun {
    return [rows, width, unit, &node = plan.node()](const Pointers& p) {
      // Elements may begin and end within a row.
      for (std::int64_t i = p.begin(); i < p.end();) {
        const std::int64_t column = i % width, count = std::min(width - column, p.end() - i);
        const auto id = static_cast<std::int64_t>(p.input<Id>(1)[i / width]);
        check_id(id, rows, node);
        std::memcpy(p.output<char>() + i * unit, p.input<char>(0) + (id * width + column) * unit,
                    static_cast<std::size_t>(count * unit));
        i += count;
      }
    };
  });
}

// Rows are added in order of the ids, whatever their values.
KernelRun gather_grad_kernel(KernelPlan& plan) {
  const Shape& table = plan.output().shape;
  const std::int64_t rows = table[0], width = table.product(1, table.rank());
  const Shape& ids = plan.input(1).shape;
  const std::int64_t per_row = ids.product(1, ids.rank());
  const Range ids_range{plan.range().begin * per_row, plan.range().end * per_row};
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return visit_ids(plan.input(1).dtype, [&]<class Id>(Id) -> KernelRun {
      return [rows, width, ids_range, &node = plan.node()](const Pointers& p) {
        std::fill_n(p.output<T>(), rows * width, T(0));
        for (std::int64_t i = ids_range.begin; i < ids_range.end; ++i) {
          const auto id = static_cast<std::int64_t>(p.input<Id>(1)[i]);
          check_id(id, rows, node);
          T* const sum = p.output<T>() + id * width;
          const T* const term = p.input<T>(0) + i * width;
          for (std::int64_t j = 0; j < width; ++j) sum[j] += term[j];
        }
      };
    });
  });
}

}  // namespace

const Op kGather{.name = "Gather",
                 .inputs = 2,
                 .shape = gather_shape,
                 .gradient = gather_gradient,
                 .split = Split::kElements,
                 .shards = by_rows<2>,
                 .reference = gather_kernel,
                 .half = true};
const Op kGatherGrad{.name = "GatherGrad",
                     .inputs = 3,
                     .shape = gather_grad_shape,
                     .gradient = gather_grad_gradient,
                     .split = Split::kBatchReduce,
                     .reference = gather_grad_kernel};

void refuse_id(const Node& node, std::int64_t id, std::int64_t rows) {
  throw InvalidArgument(cat(node.describe(), ": id ", id, " is not in [0, ", rows, ")"));
}

Output gather(Output table, Output ids, At at) {
  return table.graph().add(kGather, {table, ids}, at).output();
}

}  // namespace belfry
