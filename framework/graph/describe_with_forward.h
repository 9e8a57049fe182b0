// How texts for people name a gradient.
#pragma once
#include <string>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"

namespace belfry {

// "a gradient of MatMul 'fc1' (built at model.cc:41), Mul 'gradients/fc1_grad/Mul'", with the line
// that both have. For a node that is no gradient: its description.
inline std::string describe_with_forward(const Node& node) {
  const Node* const forward = node.origin().forward;
  return forward ? cat("a gradient of ", forward->describe(), ", ", node.op().name, " '",
                       node.name(), "'")
                 : node.describe().str();
}

}  // namespace belfry
