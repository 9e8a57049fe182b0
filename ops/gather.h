// Gather: rows of a table, e.g. of embeddings.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kGather;
extern const Op kGatherGrad;

// table [v, ...], ids of any shape (i32 or i64) -> [ids..., ...]. A run fails with InvalidArgument
// naming the op and the id if one is not in [0, v). The gradient of a row of the table is the sum
// of the gradients of all copies of it, in order of the ids.
Output gather(Output table, Output ids, At at = {});

// Throws: kernels have found an id that is not in [0, rows).
[[noreturn]] void refuse_id(const Node& node, std::int64_t id, std::int64_t rows);

}  // namespace belfry
