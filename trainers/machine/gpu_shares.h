// Divides the GPUs of hosts among the processes of one training.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/device/gpus.h"

namespace belfry {

struct ProcessGpus {
  std::string host;
  std::vector<std::string> uuids;  // of the GPUs that the process sees, by number

  // The text that other processes read().
  std::string str() const;
  static ProcessGpus read(const std::string& text);
};

// The GPUs of this process.
ProcessGpus own_gpus(const std::string& host, const Gpus& found = gpus());

// The numbers of the GPUs that process `rank` takes among those that it sees: all of them, if no
// other process of its host sees one. Processes of a host that see the same GPUs, in any order,
// divide them equally, in the order of ranks. If there are fewer GPUs than processes, several
// processes take the same GPU, which NCCL must support (`several_ranks`). Throws InvalidArgument
// naming both ranks and the GPUs if two processes see some, but not all, GPUs in common.
std::vector<int> share_of_gpus(std::span<const ProcessGpus> all, int rank, bool several_ranks);

}  // namespace belfry
