// Finds nodes around an op that can be fused with it (Op::fuse).
#pragma once
#include "belfry/framework/plan/surroundings.h"

namespace belfry {

// The input of a cast from 16 bits, which a GPU reads without the cast; else the value itself.
Value before_cast(const Surroundings& around, Value value);
// The only user of a value, if it is a cast to `dtype`.
NodeIndex cast_to(const Surroundings& around, Value value, DType dtype);

// A sum of two tensors of one type.
struct SumOfTwo {
  NodeIndex node;
  Value left, right;
};
// The terms of an Add or AddN; no node if it is another sum.
SumOfTwo sum_of_two(const Surroundings& around, NodeIndex sum);

// A sum of rows and a bias [columns].
struct BiasSum {
  NodeIndex node;
  Value x, bias;
};
// The terms of an Add of rows and a bias; no node for any other sum.
BiasSum bias_sum(const Surroundings& around, NodeIndex sum);

}  // namespace belfry
