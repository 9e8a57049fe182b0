// How the processes of one training share the GPUs of their hosts.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/device/gpus.h"

namespace belfry {

struct ProcessGpus {
  std::string host;
  std::vector<std::string> uuids;  // of the GPUs that the process sees, by number

  // For other processes to read().
  std::string str() const;
  static ProcessGpus read(const std::string& text);
};

// Of this process.
ProcessGpus own_gpus(const std::string& host, const Gpus& found = gpus());

// The numbers of the GPUs that process `rank` takes, of those that it sees: all of them, if no
// other process of its host sees one. Processes of a host that see the same GPUs, in any order,
// divide them in the order of ranks, equally many for each. If there are fewer GPUs than such
// processes, several take one, which NCCL must serve (`several_ranks`). Throws InvalidArgument
// naming both ranks and the GPUs for processes that see some, but not all, GPUs in common.
std::vector<int> share_of_gpus(std::span<const ProcessGpus> all, int rank, bool several_ranks);

}  // namespace belfry
