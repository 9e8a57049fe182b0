// What a run leaves on the host for the next one of its step. Only the pass for late updates makes
// these nodes.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// Memory that is kept: it is of the plan, and lives from one run to the next.
extern const Op kHeld;

// Copies tensors of one GPU into such memory: inputs n .. 2n - 1 into inputs 0 .. n - 1.
extern const Op kCopyToHost;

}  // namespace belfry
