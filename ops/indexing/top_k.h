// The largest or smallest elements of lines, and where they are.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kTopK;  // of rows: x of rank 2 or more
extern const Op kArgMax;
extern const Op kArgMin;

// Those of a node of TopK.
struct RankedOptions {
  std::int64_t k = 1;
  bool smallest = false;
};

struct ArgMaxOptions {
  int axis = 0;
};

// Where the largest or smallest element along an axis is, i64; the axis is dropped. The first of
// equal ones, and the first NaN if there is one, as in NumPy. f32 f64 i32 i64.
Output argmax(Output x, int axis, At at = {});
Output argmin(Output x, int axis, At at = {});

struct TopKOptions {
  bool smallest = false;
};

struct TopK {
  Output values, indices;
};

// The k largest elements along the last axis, in order, and their places, i64: [..., k]. Equal ones
// are in order of their places. With k of all elements it sorts. NaN counts as the largest, as in
// torch.topk. The gradient of the values goes to the elements that they are.
TopK top_k(Output x, std::int64_t k, TopKOptions options = {}, At at = {});

}  // namespace belfry
