// Sends a checkpoint from one process to others, of other hosts.
#pragma once
#include <string>
#include <vector>

#include "belfry/framework/group/processes.h"

namespace belfry {

// Ranks: who has the checkpoint, and who receives it.
struct CheckpointRoute {
  int from;
  std::vector<int> to;

  bool leads_to(int rank) const;
};

// All processes call it. Those that receive the checkpoint write it to `path`, which `from` reads.
// If it returns, all of them have it. Throws IoError if it cannot be read or written.
void send_checkpoint(Processes& processes, const CheckpointRoute& route, const std::string& path);

}  // namespace belfry
