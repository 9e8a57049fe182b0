// Elements that indices name, and sums into such elements: on top of gather (ops/gather.h).
#pragma once
#include "belfry/ops/gather.h"

namespace belfry {

// The rows [ids..., ...] of x along `axis`, as np.take. ids are i32 or i64, of any shape. A run
// fails if one is not in [0, size of the axis); so with all functions here.
Output take(Output x, Output ids, int axis, At at = {});

// y[i][j][k] = x[i][ids[i][j][k]][k] for axis 1 of three, as np.take_along_axis and torch.gather:
// each line along the axis has indices of its own. The other dimensions of x and ids are equal. The
// last axis is fastest; for others, x and ids are transposed.
Output take_along_axis(Output x, Output ids, int axis, At at = {});

// ids [..., d] hold indices of the first d dimensions of x, as tf.gather_nd.
Output gather_nd(Output x, Output ids, At at = {});

// x with updates added at the places that gather(x, ids, options) takes: by default rows of x, as
// tf.tensor_scatter_nd_add of rows, np.add.at, and torch.index_add. f32 f64 i32 i64. With
// batch_dims and axis 1 less than the rank it is torch.scatter_add along the last axis. Updates of
// one place are added in order of the ids, on GPUs, too.
Output scatter_add(Output x, Output ids, Output updates, GatherOptions options = {}, At at = {});

// x, ids [..., d] -> the numbers [...], i64, of elements or rows in x whose first d dimensions are
// joined to one.
extern const Op kFlatIndex;

}  // namespace belfry
