// OneHot: labels as rows of zeros with a one.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kOneHot;

struct OneHotOptions {
  std::int64_t depth = 0;
  DType dtype = DType::kF32;
};

// labels of any shape (i32 or i64) -> [labels..., depth]: 1 at the label of each row, else 0. A run
// fails with InvalidArgument naming the op, the row and the label if one is not in [0, depth).
Output one_hot(Output labels, std::int64_t depth, DType dtype = DType::kF32, At at = {});

}  // namespace belfry
