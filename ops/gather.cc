#include "belfry/ops/gather.h"

#include <algorithm>
#include <cstring>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

// The type of the rows of input `table` that the ids of input 1 name.
TensorType type_of_rows(const ShapeContext& c, std::size_t table) {
  c.require(c.input(table).rank() >= 1, "the table is a scalar, but has to have rows");
  c.require(c.dtype(1) == DType::kI32 || c.dtype(1) == DType::kI64, "the ids are ",
            name_of(c.dtype(1)), ", but must be i32 or i64");
  std::vector<std::int64_t> dims = c.input(1).dims();
  const std::vector<std::int64_t> of_table = c.input(table).dims();
  dims.insert(dims.end(), of_table.begin() + 1, of_table.end());
  return {Shape(dims), c.dtype(table)};
}

OutputTypes gather_shape(const ShapeContext& c) { return {type_of_rows(c, 0)}; }

// Inputs: the gradient of the gathered rows, the ids, the table.
OutputTypes gather_grad_shape(const ShapeContext& c) {
  const TensorType rows = type_of_rows(c, 2);
  c.require_floating(0);
  c.require(c.dtype(0) == rows.dtype && c.input(0).compatible(rows.shape),
            "the gradient of rows is ", c.type(0), ", but they are ", rows);
  return {c.type(2)};
}

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
    return [rows, width, unit, &node = plan.node()](const KernelPointers& p) {
      // The range may begin and end within a row.
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

// Adds rows [.., width] to the table's rows that the ids name, in order of the ids.
template <class T, class Id>
BELFRY_KERNEL void add_rows(const T* rows, const Id* ids, std::int64_t count, std::int64_t width,
                            T* table) {
  for (std::int64_t i = 0; i < count; ++i) {
    T* const sum = table + static_cast<std::int64_t>(ids[i]) * width;
    const T* const term = rows + i * width;
    BELFRY_INDEPENDENT
    for (std::int64_t j = 0; j < width; ++j) sum[j] += term[j];
  }
}

template <class T, class Id>
void plain_add_rows(const T* rows, const Id* ids, std::int64_t count, std::int64_t width,
                    T* table) {
  for (std::int64_t i = 0; i < count * width; ++i)
    table[static_cast<std::int64_t>(ids[i / width]) * width + i % width] += rows[i];
}

// Calls add(rows, ids, count, width, table) after a check that all ids are rows of the table.
template <class Add>
KernelRun gather_grad_kernel(const KernelPlan& plan, Add add) {
  const Shape& table = plan.output().shape;
  const std::int64_t rows = table[0], width = table.product(1, table.rank());
  const std::int64_t count = plan.input(1).shape.elements();
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return visit_ids(plan.input(1).dtype, [&]<class Id>(Id) -> KernelRun {
      return [=, &node = plan.node()](const KernelPointers& p) {
        const Id* const ids = p.input<Id>(1);
        for (std::int64_t i = 0; i < count; ++i) check_id(ids[i], rows, node);
        std::fill_n(p.output<T>(), rows * width, T(0));
        add(p.input<T>(0), ids, count, width, p.output<T>());
      };
    });
  });
}

KernelRun gather_grad_cpu(KernelPlan& plan) {
  return gather_grad_kernel(plan, [](auto... arguments) { add_rows(arguments...); });
}
KernelRun gather_grad_reference(KernelPlan& plan) {
  return gather_grad_kernel(plan, [](auto... arguments) { plain_add_rows(arguments...); });
}

}  // namespace

const Op kGather{.name = "Gather",
                 .inputs = 2,
                 .shape = gather_shape,
                 .gradient = gather_gradient,
                 .split = WorkSplit::kElements,
                 .shards = by_rows<2>,
                 .reference = gather_kernel,
                 .half = true};
const Op kGatherGrad{.name = "GatherGrad",
                     .inputs = 3,
                     .shape = gather_grad_shape,
                     .gradient = gather_grad_gradient,
                     .heavy = true,
                     .shards = to_sums<3>,
                     .cpu = gather_grad_cpu,
                     .reference = gather_grad_reference};

void refuse_id(const Node& node, std::int64_t id, std::int64_t rows) {
  throw InvalidArgument(cat(node.describe(), ": id ", id, " is not in [0, ", rows, ")"));
}

Output gather(Output table, Output ids, At at) {
  return table.graph().add(kGather, {table, ids}, at).output();
}

}  // namespace belfry
