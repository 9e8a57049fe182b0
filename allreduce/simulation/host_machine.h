// One host of a cluster, for predictions of plans.
#pragma once
#include "belfry/allreduce/prediction/machine.h"
#include "belfry/allreduce/simulation/cluster.h"

namespace belfry {

// Its devices are gpu:0, gpu:1, ..., and its memory is that of cpu:0. Plans know links between two
// devices, not how much one device can send to all others. So each pair has an equal share of what
// a device sends, at the rate of large transfers; those of different islands have one of what goes
// over a bridge. Devices that share a feed take turns on it.
MachineDescription host_machine(const ClusterDescription& cluster);

}  // namespace belfry
