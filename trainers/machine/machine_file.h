// Reads the files that describe machines.
#pragma once
#include <optional>
#include <string>

#include "belfry/allreduce/prediction/machine.h"
#include "belfry/allreduce/simulation/cluster.h"
#include "belfry/framework/base/file_system.h"

namespace belfry {

// The machine of a file, as parse_machine() reads it, or one host of the cluster that it describes.
// Throws OptionMistake about the option `links` if the file is wrong.
MachineDescription read_machine(FileSystem& files, const std::string& path);

// The cluster that such a file describes; nothing if it describes links of pairs of devices.
std::optional<ClusterDescription> read_cluster(FileSystem& files, const std::string& path);

}  // namespace belfry
