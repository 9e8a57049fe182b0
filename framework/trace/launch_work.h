// How much a launch computes and moves.
#pragma once
#include <cstdint>

#include "belfry/framework/plan/plan.h"

namespace belfry {

struct LaunchWork {
  double flops = 0;        // multiplications and additions of products; 0 for other ops
  std::int64_t bytes = 0;  // of its inputs and outputs, as if each went through memory once
};

// Of one run of the node's kernel: of a shard, if the node runs once per shard.
LaunchWork work_of(const Plan& plan, NodeIndex node, int shard);

// What a launch is for: "forward", "gradient", "update" (with sums, if they are fused),
// "communication" (other sums, and copies) or "other".
const char* phase_of(const PlanNode& node);

}  // namespace belfry
