// How much a launch computes and moves.
#pragma once
#include <cstdint>
#include <span>

#include "belfry/framework/plan/plan.h"

namespace belfry {

struct LaunchWork {
  double flops = 0;        // multiplications and additions of products; 0 for other ops
  std::int64_t bytes = 0;  // of its inputs and outputs, as if each went through memory once
};

// Of one run of the node's kernel: of a shard, if the node runs once per shard.
LaunchWork work_of(const Plan& plan, NodeIndex node, int shard);

// The multiply-adds of a node with inputs and outputs of these types. The types of a plan have no
// unknown sizes, but a plan may pack weights.
using MultiplyAdds = double (*)(const Node& node, std::span<const TensorType> inputs,
                                std::span<const TensorType> outputs);

// The room `ops`, which knows these ops, sets the function when the program starts. Without it no
// launch has arithmetic.
void set_multiply_adds(MultiplyAdds function);

}  // namespace belfry
