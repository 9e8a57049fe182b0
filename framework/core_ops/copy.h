// Copy: the same tensor in memory of its own. Only plans make it: for fetches, which never alias
// memory of a session, and for reads whose variable is written before their last use.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kCopy;

}  // namespace belfry
