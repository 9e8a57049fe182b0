// What ops look for around them to be fused with it (Op::fuse).
#pragma once
#include "belfry/framework/plan/surroundings.h"

namespace belfry {

// What a cast from 16 bits, which a GPU reads as they are, is made of; else the value itself.
Value before_cast(const Surroundings& around, Value value);
// The cast that alone uses a value, if it is one to `dtype`.
NodeIndex cast_to(const Surroundings& around, Value value, DType dtype);

// A sum of two tensors of one type.
struct SumOfTwo {
  NodeIndex node;
  Value left, right;
};
// What an Add or AddN adds up; no node if that is something else.
SumOfTwo sum_of_two(const Surroundings& around, NodeIndex sum);

// A sum of rows and a bias [columns].
struct BiasSum {
  NodeIndex node;
  Value x, bias;
};
// What an Add adds up; no node if that is something else.
BiasSum bias_sum(const Surroundings& around, NodeIndex sum);

}  // namespace belfry
