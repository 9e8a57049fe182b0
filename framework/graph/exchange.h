// What an op that moves tensors between processes asks of them.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "belfry/framework/group/group.h"

namespace belfry {

// The messages of one launch. They stay where they are until they are done. All processes make the
// same launches; a message is received where it is sent to.
struct Exchange {
  // Of this process alone.
  struct Copied {
    std::span<const std::byte> from;
    std::span<std::byte> to;
  };

  std::vector<Copied> kept;  // before anything is sent
  std::vector<GroupMessage> received, sent;
  // The same as all of these where each process gives as many bytes: those of rank r are piece r of
  // `to`.
  std::optional<Copied> gathered;
  std::vector<GroupMessage> summed;  // over all processes, in place
  DType dtype = DType::kF32;         // of those

  bool done() const {
    return std::ranges::all_of(received, &GroupMessage::done) &&
           std::ranges::all_of(sent, &GroupMessage::done) &&
           std::ranges::all_of(summed, &GroupMessage::done);
  }
};

}  // namespace belfry
