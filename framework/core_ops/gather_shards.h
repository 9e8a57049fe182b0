// Ops that assemble a whole tensor from the shards of a device. Only plans make these nodes.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// Inputs: the rows of each shard. Output: all rows, one shard after the other.
extern const Op kGatherShards;
// Inputs: the partial sum of each shard. Output: their canonical sum, as AddN's.
extern const Op kSumShards;

}  // namespace belfry
