// How texts for people name a gradient.
#pragma once
#include <string>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"

namespace belfry {

// "a gradient of MatMul 'fc1' (built at model.cc:41), " and the description of the node; of others
// that alone. The lines of gradients all ask for gradients, so that of the forward node is first.
inline std::string describe_with_forward(const Node& node) {
  const Node* const forward = node.origin().forward;
  return cat(forward ? cat("a gradient of ", forward->describe(), ", ") : "", node.describe());
}

}  // namespace belfry
