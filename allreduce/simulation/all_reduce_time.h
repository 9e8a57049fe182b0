// How long all-reduces take on a cluster.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "belfry/allreduce/simulation/cluster.h"

namespace belfry {

// Devices of a cluster that take part: the same number in each host but perhaps the last.
struct ClusterPart {
  int devices = 1;
  int per_host = 1;

  int hosts() const { return (devices + per_host - 1) / per_host; }
  int in_host() const { return devices < per_host ? devices : per_host; }  // of a full host
};

// How gradients are summed.
//   ring          one ring through all devices, host after host
//   tree          a double tree over hosts, a chain in each
//   hierarchical  a reduce-scatter in each host, rings across hosts, an all-gather in each host
//   switch        sums in the switches of a host, a tree over hosts
//   host          each device sends to the memory of its host and fetches sums from there; over
//                 several hosts, each holds a part of all sums
//   servers       the same, but what is fetched are parameters, once all of them are updated; some
//                 hosts hold them
//   fastest       the fastest of those above but host and servers
enum class SumAlgorithm : std::uint8_t {
  kFastest,
  kRing,
  kTree,
  kHierarchical,
  kSwitch,
  kHost,
  kServers
};

// Throws InvalidArgument, with all names, for an unknown one.
SumAlgorithm sum_algorithm_called(std::string_view name);

// Seconds to sum `bytes` of each device, so that each has the sum. A ring of n devices costs 2 (n -
// 1) hops, and moves 2 (n - 1) / n of the bytes over each link. All devices of a host share its
// NICs. Throws InvalidArgument if the algorithm needs a switch or links to host memory that the
// cluster lacks, or several hosts and it has no network.
double all_reduce_seconds(const ClusterDescription& cluster, const ClusterPart& part, double bytes,
                          SumAlgorithm algorithm = SumAlgorithm::kFastest);

// Seconds to send `bytes` of each device to hosts that sum them, or to fetch as many from there. Of
// each host the sum goes over the network. `servers` hosts hold a part each; 0: all.
double to_servers_seconds(const ClusterDescription& cluster, const ClusterPart& part, double bytes,
                          int servers = 0);

}  // namespace belfry
