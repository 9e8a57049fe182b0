#include <algorithm>
#include <numeric>

#include "belfry/framework/base/text.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/indexing/cumsum.h"
#include "belfry/ops/indexing/one_hot.h"
#include "belfry/ops/indexing/segments.h"
#include "belfry/ops/indexing/take.h"
#include "belfry/ops/indexing/top_k.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/trainers/onnx/op_writers_impl.h"

namespace belfry::onnx {
namespace {

// ids with a last dimension of 1.
std::string as_points(OnnxGraph& g, Output ids) {
  return g.add("Unsqueeze", {g.cast(g.in(ids), DType::kI64), g.ints({-1})});
}

void write_gather(OnnxGraph& g, const Node& node) {
  const auto& [given, batch_dims] = node.options<GatherOptions>();
  const Output x = node.input(0), ids = node.input(1);
  const auto axis = static_cast<std::int64_t>(from_end(given, x.shape().rank()));
  if (batch_dims == 0)
    return g.set(node.output(), g.add("Gather", {g.in(x), g.in(ids)}, {{"axis", axis}}));
  if (axis != batch_dims)
    refuse(node, cat("it has dimensions between the batch and axis ", axis,
                     "; transpose them to its end"));
  g.set(node.output(), g.add("GatherND", {g.in(x), as_points(g, ids)},
                             {{"batch_dims", std::int64_t{batch_dims}}}));
}

// What scatter_add() adds: zeros like input 2, plus the rows of input 0 in their places.
void write_gather_grad(OnnxGraph& g, const Node& node) {
  const auto& [given, batch_dims] = node.options<GatherOptions>();
  const Output rows = node.input(0), ids = node.input(1), like = node.input(2);
  const std::size_t rank = like.shape().rank(), axis = from_end(given, rank);
  // A list of ids for each sample of the batch, and lists of rows; 0 keeps a dimension.
  Ints ids_shape(rank, 1), rows_shape = like.shape().dims();
  std::fill_n(ids_shape.begin(), batch_dims, 0);
  std::fill_n(rows_shape.begin(), axis, 0);
  ids_shape[axis] = -1;
  rows_shape[axis] = -1;
  for (std::size_t i = axis + 1; i < rank; ++i)
    if (rows_shape[i] == kUnknownSize)
      refuse(node, cat("dimension ", i, " of ", like.type(), " must be known"));
  const std::string list = g.reshape(g.in(rows), rows_shape);
  const std::string places =
      g.add("Expand", {g.cast(g.reshape(g.in(ids), ids_shape), DType::kI64), shape_of(g, list)});
  const std::string zeros = g.add("Expand", {g.number(0, like.dtype()), shape_of(g, g.in(like))});
  g.set(node.output(),
        g.add("ScatterElements", {zeros, places, list},
              {{"axis", static_cast<std::int64_t>(axis)}, {"reduction", std::string("add")}}));
}

WriteOp arg_extreme(const char* op) {
  return [op](OnnxGraph& g, const Node& node) {
    const std::size_t axis =
        from_end(node.options<ArgMaxOptions>().axis, node.input(0).shape().rank());
    g.set(node.output(),
          g.add(op, {g.in(node.input(0))},
                {{"axis", static_cast<std::int64_t>(axis)}, {"keepdims", std::int64_t{0}}}));
  };
}

void write_top_k(OnnxGraph& g, const Node& node) {
  const auto& [k, smallest] = node.options<RankedOptions>();
  const Names values_and_places =
      g.add("TopK", {g.in(node.input(0)), g.ints({k})}, {{"largest", std::int64_t{!smallest}}}, 2);
  g.set(node.output(), values_and_places[1]);
}

void write_cumsum(OnnxGraph& g, const Node& node) {
  const auto& [axis, exclusive, reverse] = node.options<CumSumOptions>();
  const std::string along = g.constant(Tensor(static_cast<std::int64_t>(axis)));
  g.set(node.output(), g.add("CumSum", {g.in(node.input(0)), along},
                             {{"exclusive", static_cast<std::int64_t>(exclusive)},
                              {"reverse", static_cast<std::int64_t>(reverse)}}));
}

// ONNX's OneHot does not take scalars.
void write_one_hot(OnnxGraph& g, const Node& node) {
  const auto& [depth, dtype] = node.options<OneHotOptions>();
  Ints classes(static_cast<std::size_t>(depth));
  std::iota(classes.begin(), classes.end(), 0);
  const std::string hit = g.add("Equal", {as_points(g, node.input(0)), g.ints(classes)});
  g.set(node.output(), g.cast(hit, dtype));
}

void write_segment_sum(OnnxGraph& g, const Node& node) {
  const Output values = node.input(0), ids = node.input(1);
  const std::string zeros = g.add(
      "Expand", {g.number(0, values.dtype()), g.ints(new_shape(node, node.output().shape()))});
  g.set(node.output(), g.add("ScatterND", {zeros, as_points(g, ids), g.in(values)},
                             {{"reduction", std::string("add")}}));
}

void write_flat_index(OnnxGraph& g, const Node& node) {
  const Shape& x = node.input(0).shape();
  const std::int64_t joined = node.input(1).shape().back();
  Ints steps(static_cast<std::size_t>(joined), 1);
  for (std::size_t axis = steps.size(); axis-- > 1;) {
    if (x[axis] == kUnknownSize) refuse(node, cat("dimension ", axis, " of ", x, " is unknown"));
    steps[axis - 1] = steps[axis] * x[axis];
  }
  const std::string ids = g.cast(g.in(node.input(1)), DType::kI64);
  g.set(node.output(), g.add("ReduceSum", {g.add("Mul", {ids, g.ints(steps)}), g.ints({-1})},
                             {{"keepdims", std::int64_t{0}}}));
}

}  // namespace

std::vector<OpWriter> indexing_writers() {
  return {{&kTopK, write_top_k},
          {&kGather, write_gather},
          {&kGatherGrad, write_gather_grad},
          {&kArgMax, arg_extreme("ArgMax")},
          {&kArgMin, arg_extreme("ArgMin")},
          {&kCumSum, write_cumsum},
          {&kOneHot, write_one_hot},
          {&kSegmentSum, write_segment_sum},
          {&kFlatIndex, write_flat_index}};
}

}  // namespace belfry::onnx
