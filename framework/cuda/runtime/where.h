// Says in errors what a call of a library was for.
#pragma once
#include <string>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"

namespace belfry::cuda {

struct Where {
  std::string device;          // "GPU 1"
  const Node* node = nullptr;  // the node being prepared or run

  // "for Conv2d 'tower1/conv0' (built at model.cc:41) on GPU 1".
  std::string str() const {
    return node ? cat("for ", node->describe(), " on ", device) : cat("on ", device);
  }
};

}  // namespace belfry::cuda
