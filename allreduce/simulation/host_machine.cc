#include "belfry/allreduce/simulation/host_machine.h"

#include <algorithm>

#include "belfry/framework/base/text.h"
#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

MachineDescription host_machine(const ClusterDescription& cluster) {
  constexpr double kMicroseconds = 1e6, kGigabytes = 1e-9, kLarge = 1 << 30;
  constexpr double kDefaultLaunch = 5, kDefaultBandwidth = 500;  // those of parse_machine()
  const int devices = cluster.devices_per_host;
  MachineDescription machine;
  for (int d = 0; d < devices; ++d) machine.devices.push_back(DeviceSpec::local("GPU", d));
  machine.devices.push_back(DeviceSpec::local("CPU", 0));
  machine.launch_us = cluster.launch > 0 ? cluster.launch * kMicroseconds : kDefaultLaunch;
  const double memory =
      cluster.memory_rate > 0 ? cluster.memory_rate * kGigabytes : kDefaultBandwidth;
  machine.bandwidth = {{.bytes = 1, .one_gbps = memory, .all_gbps = memory}};
  const double latency_us = cluster.link.latency * kMicroseconds;
  const double pair =
      devices > 1 ? cluster.link.rate.at(kLarge) * kGigabytes / (devices - 1) : memory;
  const int island = cluster.devices_per_island > 0 ? cluster.devices_per_island : devices;
  const int pairs_across = island * (devices - island);  // of an island; they share the bridge
  const double across =
      pairs_across > 0 ? cluster.bridge_rate.at(kLarge) * kGigabytes / pairs_across : pair;
  const double feed = cluster.feed_rate > 0 ? cluster.feed_rate * kGigabytes : pair;
  machine.links.assign(at(devices + 1), std::vector<Link>(at(devices + 1)));
  for (int a = 0; a < devices; ++a) {
    for (int b = 0; b < devices; ++b)
      if (a != b)
        machine.links[at(a)][at(b)] = {latency_us,
                                       a / island == b / island ? pair : std::min(pair, across)};
    const Link to_host{latency_us, feed, cat("feed ", a / cluster.devices_per_feed)};
    machine.links[at(a)][at(devices)] = machine.links[at(devices)][at(a)] = to_host;
  }
  return machine;
}

}  // namespace belfry
