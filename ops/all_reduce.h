// AllReduce: every participant gets the sum of all.
#pragma once
#include "belfry/framework/graph.h"

namespace belfry {

// K tensors of one shape and type -> K tensors, each the canonical sum of all: a balanced tree over
// their order, split at ceil(K / 2), left + right. Output i lives on the device of input i; outputs
// of one memory space are one tensor, in the memory of input 0 if nobody else reads that. f32 f64
// i32; integers wrap.
extern const Op kAllReduce;

struct AllReduceOptions {
  bool mean = false;  // divides by K once at the end; floating types only
};

std::vector<Output> all_reduce(std::span<const Output> xs, AllReduceOptions options = {},
                               At at = {});

}  // namespace belfry
