// Gather: rows of a table, e.g. of embeddings, or parts of a tensor along any axis.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kGather;
extern const Op kGatherGrad;

// ids name places along dimension `axis` of x (negative values count from the last). The first
// `batch_dims` dimensions of x and ids are the same, and each element of them has ids of its own.
struct GatherOptions {
  int axis = 0;
  int batch_dims = 0;
};

// table [v, ...], ids of any shape (i32 or i64) -> [ids..., ...]. A run fails with InvalidArgument
// naming the op and the id if one is not in [0, v). The gradient of a row of the table is the sum
// of the gradients of all copies of it, in order of the ids.
Output gather(Output table, Output ids, At at = {});
// x [batch..., before..., v, after...], ids [batch..., ids...] -> [batch..., before..., ids...,
// after...], as tf.gather. With axis 1 and one batch dimension, each sample has its own table.
Output gather(Output x, Output ids, GatherOptions options, At at = {});

// Zeros with the shape of `like`, to which dy is added in order of the ids: the gradient of
// gather(like, ids, options).
Output gather_grad(Output dy, Output ids, Output like, GatherOptions options = {}, At at = {});

// Throws: kernels have found an id that is not in [0, rows).
[[noreturn]] void refuse_id(const Node& node, std::int64_t id, std::int64_t rows);

}  // namespace belfry
