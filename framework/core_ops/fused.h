// Fused: several nodes of one device in one pass over memory.
#pragma once
#include "belfry/framework/graph/node.h"

namespace belfry {

// Plans make it (passes/fuse.cc); graphs never hold one. Its members work element by element, or
// vector by vector, so a host runs all of them on some thousand elements before it takes the next
// ones. What only members read stays in cache. The bits are those of the members, one by one.
extern const Op kFused;

}  // namespace belfry
