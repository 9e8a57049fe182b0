// FusedUpdate: a collective, or a sum over shards, and the updates that apply its results, in one
// pass over memory. On GPUs it may also be updates without a sum, in one launch.
#pragma once
#include "belfry/framework/graph/node.h"

namespace belfry {

// Plans make it (passes/fuse_updates.cc); graphs never hold one. A host combines some thousand
// elements at a time into a buffer on the stack, from which each update takes them; a GPU combines
// them in registers. The bits are those of the collective followed by the updates.
extern const Op kFusedUpdate;

}  // namespace belfry
