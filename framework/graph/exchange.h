// The messages with which an op moves tensors between processes.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "belfry/framework/group/group.h"

namespace belfry {

// The messages of one launch. They stay in place until they are done. All processes make the same
// launches, and each sent message has a receiver.
struct Exchange {
  // A copy within this process.
  struct Copied {
    std::span<const std::byte> from;
    std::span<std::byte> to;
  };

  std::vector<Copied> kept;  // done before anything is sent
  std::vector<GroupMessage> received, sent;
  // The same as the lists above, as an all-gather, if each process contributes equally many bytes:
  // those of rank r are piece r of `to`.
  std::optional<Copied> gathered;
  std::vector<GroupMessage> summed;  // over all processes, in place
  DType dtype = DType::kF32;         // of `summed`

  bool done() const {
    return std::ranges::all_of(received, &GroupMessage::done) &&
           std::ranges::all_of(sent, &GroupMessage::done) &&
           std::ranges::all_of(summed, &GroupMessage::done);
  }
};

}  // namespace belfry
