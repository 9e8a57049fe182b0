// What an op that moves tensors between processes asks of them.
#pragma once
#include <algorithm>
#include <vector>

#include "belfry/framework/group/group.h"

namespace belfry {

// The messages of one launch. They stay where they are until they are done. All processes make the
// same launches; a message is received where it is sent to.
struct Exchange {
  std::vector<GroupMessage> received, sent;
  std::vector<GroupMessage> summed;  // over all processes, in place
  DType dtype = DType::kF32;         // of those

  bool done() const {
    return std::ranges::all_of(received, &GroupMessage::done) &&
           std::ranges::all_of(sent, &GroupMessage::done) &&
           std::ranges::all_of(summed, &GroupMessage::done);
  }
};

}  // namespace belfry
