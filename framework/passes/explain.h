// Why the placer put a node where it is.
#pragma once
#include "belfry/framework/graph/explanation.h"
#include "belfry/framework/passes/placement.h"

namespace belfry {

// Session::explain: places the graph again, and looks on.
Explanation explain_placement(const Output& output, const Placement& placement);

}  // namespace belfry
