// The processes of a run once they have met.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "belfry/framework/group/tcp_peer_impl.h"

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

// The group of process `rank`, which runs on `host`. peers[rank] is null, and so are the peers that
// a failed start never reached; the group can then only end the others.
std::unique_ptr<ProcessGroup> make_tcp_group(int rank, std::string host,
                                             std::vector<std::unique_ptr<TcpPeer>> peers,
                                             TcpLimits limits = {});

}  // namespace belfry::detail
