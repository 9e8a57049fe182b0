// Finds the newest save of a run in the memory of its hosts, when the run starts again.
#pragma once
#include <string>

#include "belfry/framework/base/memory_folder.h"
#include "belfry/framework/group/processes.h"

namespace belfry {

// The lowest rank of the host of `rank`, which reads and writes the host's saves.
int first_of_host(const Processes& processes, int rank);
// Whether this process is that one; null is a lone process.
bool is_first_of_host(const Processes* processes);

// All processes of a run call it, before they build anything. Finds the newest save that any of
// them has in memory, unless a checkpoint of the run directory is newer, and sends it to the hosts
// that lack it. Returns its path, on this host; "" if there is none. `processes` is null for a lone
// process. Throws IoError if it cannot be read or written.
std::string find_in_memory(Processes* processes, const std::string& run_dir,
                           const std::string& root = memory_file_system());

}  // namespace belfry
