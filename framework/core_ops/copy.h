// Copy: the same tensor in other memory. Only plans make it. They copy fetches, which never alias
// memory of a session, reads whose variable is written before their last use, and tensors that go
// to other memory. One node may copy several small tensors from a GPU to hosts (group_copies()).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kCopy;

}  // namespace belfry
