// Slice: a box of a tensor.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kSlice;
extern const Op kSliceGrad;

struct SliceOptions {
  std::vector<std::int64_t> begin, size;
};

// x[begin[0] : begin[0] + size[0], ...]; a size of -1 takes the rest. One begin and size per
// dimension.
Output slice(Output x, std::vector<std::int64_t> begin, std::vector<std::int64_t> size, At at = {});

// Zeros with the shape of `like`, with `dy` written at `begin`: the gradient of that slice of
// `like`.
Output slice_grad(Output dy, Output like, std::vector<std::int64_t> begin,
                  std::vector<std::int64_t> size, At at = {});

}  // namespace belfry
