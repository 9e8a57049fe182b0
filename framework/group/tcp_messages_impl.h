// The processes of a run once they have met.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/group/group.h"
#include "belfry/framework/group/tcp_calls_impl.h"

namespace belfry::detail {

struct TcpLimits {
  // The most bytes of early messages, which nobody has asked for yet. 0: half of the machine's
  // memory.
  std::size_t most_early = 0;
  // How long end_others() takes at most.
  std::chrono::milliseconds to_end{1'000};
  // Processes of one host may read long messages from each other's memory.
  bool by_memory = false;
};

// The group of process `rank`, one of those that have met. Without a door, there are no other
// connections than those of the meeting.
std::unique_ptr<ProcessGroup> make_tcp_group(int rank, std::vector<Met> met, TcpLimits limits = {},
                                             std::optional<Door> door = std::nullopt);

}  // namespace belfry::detail
