#include "belfry/ops/indexing/take.h"

#include <numeric>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/indexing/flat_index_impl.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/ids.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/transpose.h"

namespace belfry {
namespace {

OutputTypes flat_index_shape(const ShapeContext& c) {
  const Shape &x = c.input(0), &ids = c.input(1);
  require_ids(c);
  c.require(ids.rank() >= 1 && ids.back() != kUnknownSize, "the last dimension of the ids, ", ids,
            ", must be known: it says how many dimensions they index");
  c.require(ids.back() >= 1 && ids.back() <= static_cast<std::int64_t>(x.rank()), "ids ", ids,
            " index ", ids.back(), " dimensions, but x is ", x);
  std::vector<std::int64_t> dims = ids.dims();
  dims.pop_back();
  return {{Shape(dims), DType::kI64}};
}

template <class Id>
std::int64_t flat_index(const Id* ids, const FlatIndexDims& dims, const Node& node) {
  std::int64_t flat = 0;
  for (int i = 0; i < dims.count; ++i) {
    const auto id = static_cast<std::int64_t>(ids[i]);
    if (id < 0 || id >= dims.size[i]) refuse_flat_index(node, i, id, dims.size[i]);
    flat = flat * dims.size[i] + id;
  }
  return flat;
}

KernelRun flat_index_kernel(KernelPlan& plan) {
  const FlatIndexDims dims(plan);
  return visit_ids(plan.input(1).dtype, [&]<class Id>(Id) -> KernelRun {
    return [dims, &node = plan.node()](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.output<std::int64_t>()[i] = flat_index(p.input<Id>(1) + i * dims.count, dims, node);
    };
  });
}

// x with an axis exchanged with the last one.
Output with_last_axis(Output x, std::size_t axis, At at) {
  std::vector<int> order(x.shape().rank());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[axis], order.back());
  return transpose(x, order, at);
}

}  // namespace

const Op kFlatIndex{.name = "FlatIndex",
                    .inputs = 2,
                    .shape = flat_index_shape,
                    .no_gradient = "its results are integers",
                    .split = WorkSplit::kElements,
                    .shards = by_rows<2>,
                    .reference = flat_index_kernel};

void refuse_flat_index(const Node& node, std::int64_t dimension, std::int64_t id,
                       std::int64_t size) {
  throw InvalidArgument(
      cat(node.describe(), ": id ", id, " of dimension ", dimension, " is not in [0, ", size, ")"));
}

Output take(Output x, Output ids, int axis, At at) { return gather(x, ids, {.axis = axis}, at); }

Output take_along_axis(Output x, Output ids, int axis, At at) {
  const int rank = static_cast<int>(x.shape().rank());
  require(axis >= -rank && axis < rank && ids.shape().rank() == x.shape().rank(),
          "take_along_axis (", at.site, "): needs x and ids of one rank, and an axis of them, not ",
          x.shape(), ", ", ids.shape(), " and axis ", axis);
  const std::size_t along = from_end(axis, x.shape().rank());
  const GatherOptions lines{.axis = rank - 1, .batch_dims = rank - 1};
  if (static_cast<int>(along) == rank - 1) return gather(x, ids, lines, at);
  const Output y = gather(with_last_axis(x, along, at), with_last_axis(ids, along, at), lines, at);
  return with_last_axis(y, along, at);
}

Output gather_nd(Output x, Output ids, At at) {
  const Output flat = x.graph().add(kFlatIndex, {x, ids}, at).output();
  const auto joined = static_cast<std::size_t>(ids.shape().back());
  if (joined == 1) return gather(x, flat, at);
  std::vector<std::int64_t> dims = x.shape().dims();
  std::int64_t rows = 1;
  for (std::size_t i = 0; i < joined; ++i)
    rows = rows == kUnknownSize || dims[i] == kUnknownSize ? kUnknownSize : rows * dims[i];
  dims.erase(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(joined));
  dims.insert(dims.begin(), rows);
  return gather(reshape(x, Shape(dims), at), flat, at);
}

Output scatter_add(Output x, Output ids, Output updates, GatherOptions options, At at) {
  return add(x, gather_grad(updates, ids, x, options, at), at);
}

}  // namespace belfry
