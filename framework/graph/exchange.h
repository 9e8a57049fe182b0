// What an op that moves tensors between processes asks of them.
#pragma once
#include <vector>

#include "belfry/framework/group/group.h"

namespace belfry {

// The messages of one launch. All processes make the same launches; a message is received where it
// is sent to.
struct Exchange {
  std::vector<GroupMessage> received, sent;
};

}  // namespace belfry
