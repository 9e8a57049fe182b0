// How texts for people name a gradient.
#pragma once
#include <string>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"

namespace belfry {

// For a gradient: "a gradient of MatMul 'fc1' (built at model.cc:41), ", then the node's own
// description. For others: only that description. All gradients come from the line that requests
// gradients, so the line of the forward node comes first.
inline std::string describe_with_forward(const Node& node) {
  const Node* const forward = node.origin().forward;
  return cat(forward ? cat("a gradient of ", forward->describe(), ", ") : "", node.describe());
}

}  // namespace belfry
