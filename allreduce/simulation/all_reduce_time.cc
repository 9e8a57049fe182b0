#include "belfry/allreduce/simulation/all_reduce_time.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

const std::pair<const char*, SumAlgorithm> kAlgorithms[] = {
    {"fastest", SumAlgorithm::kFastest}, {"ring", SumAlgorithm::kRing},
    {"tree", SumAlgorithm::kTree},       {"hierarchical", SumAlgorithm::kHierarchical},
    {"switch", SumAlgorithm::kSwitch},   {"host", SumAlgorithm::kHost},
    {"servers", SumAlgorithm::kServers}};

// The share of a tensor that each of n devices sends, and receives, in a ring.
double ring_share(double n) { return 2 * (n - 1) / n; }

// One all-reduce.
class AllReduce {
 public:
  AllReduce(const ClusterDescription& cluster, const ClusterPart& part, double bytes)
      : cluster_(cluster),
        bytes_(bytes),
        n_(part.devices),
        g_(part.in_host()),
        h_(part.hosts()),
        net_(h_ > 1 ? cluster.network.rate.at(bytes) : std::numeric_limits<double>::infinity()) {}

  double ring() const {
    // NCCL counts two hops of each host's ring over the network, and all others within hosts.
    const double all = 2 * (n_ - 1), between = h_ > 1 ? std::min(2 * h_, all) : 0;
    const double hops = (all - between) * cluster_.link.latency + network_hops(between);
    return hops + bytes_ * ring_share(n_) / slowest();
  }
  double tree() const {
    const double hops =
        2 * (g_ - 1) * cluster_.link.latency + network_hops(2 * std::ceil(std::log2(h_)));
    return hops + bytes_ * ring_share(n_) / slowest();
  }
  double hierarchical() const {
    double seconds = network_hops(2 * (h_ - 1)) + bytes_ * ring_share(h_) / net_;
    if (g_ > 1)
      seconds += 2 * (g_ - 1) * cluster_.link.latency + bytes_ * ring_share(g_) / inside();
    return seconds;
  }
  double in_switch() const {
    require(!cluster_.link.switch_rate.empty(), "the switches of ", cluster_.name,
            " do not add: its file has no \"switch_gbps\"");
    // Each device sends its tensor once, and the switch sends the sum once. Hosts exchange sums.
    const double hops = 2 * cluster_.link.latency + network_hops(2 * std::ceil(std::log2(h_)));
    const double inside = g_ > 1 ? bytes_ / cluster_.link.switch_rate.at(bytes_) : 0;
    return hops + std::max(inside, h_ > 1 ? bytes_ * ring_share(h_) / net_ : 0.0);
  }
  double to_servers(double servers) const {
    require(cluster_.feed_rate > 0, "the file of ", cluster_.name,
            " has no \"feed_gbps\" for sums in the memory of hosts");
    const double sharing = std::min<double>(g_, cluster_.devices_per_feed);
    // The busiest host sends all parts but its own, or receives the parts of all others.
    const double share = servers < h_ ? std::max(1.0, (h_ - 1) / servers) : (h_ - 1) / h_;
    return bytes_ * sharing / cluster_.feed_rate + network_hops(1) + bytes_ * share / net_;
  }

 private:
  double network_hops(double hops) const { return h_ > 1 ? hops * cluster_.network.latency : 0; }
  double inside() const { return cluster_.ring_rate(g_, bytes_); }
  double slowest() const { return g_ > 1 ? std::min(inside(), net_) : net_; }

  const ClusterDescription& cluster_;
  const double bytes_, n_, g_, h_;
  const double net_;
};

void require_part(const ClusterDescription& cluster, const ClusterPart& part) {
  require(part.per_host <= cluster.devices_per_host, "a host of ", cluster.name, " has ",
          cluster.devices_per_host, " devices, not ", part.per_host);
  require(part.hosts() == 1 || cluster.has_network(), part.devices, " devices are ", part.hosts(),
          " hosts of ", cluster.name, ", whose file has no \"network\"");
}

}  // namespace

SumAlgorithm sum_algorithm_called(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [known, algorithm] : kAlgorithms) {
    if (name == known) return algorithm;
    names.emplace_back(known);
  }
  throw InvalidArgument(cat("there is no way to sum called '", shown(name), "'",
                            did_you_mean(name, names), " (", join(names), ")"));
}

double all_reduce_seconds(const ClusterDescription& cluster, const ClusterPart& part, double bytes,
                          SumAlgorithm algorithm) {
  if (part.devices < 2) return 0;
  require_part(cluster, part);
  const AllReduce sum(cluster, part, bytes);
  switch (algorithm) {
    case SumAlgorithm::kRing: return sum.ring();
    case SumAlgorithm::kTree: return sum.tree();
    case SumAlgorithm::kHierarchical: return sum.hierarchical();
    case SumAlgorithm::kSwitch: return sum.in_switch();
    case SumAlgorithm::kHost:
    case SumAlgorithm::kServers: return 2 * sum.to_servers(part.hosts());
    case SumAlgorithm::kFastest: break;
  }
  double seconds = std::min({sum.ring(), sum.tree(), sum.hierarchical()});
  if (!cluster.link.switch_rate.empty()) seconds = std::min(seconds, sum.in_switch());
  return seconds;
}

double to_servers_seconds(const ClusterDescription& cluster, const ClusterPart& part, double bytes,
                          int servers) {
  if (part.devices < 2) return 0;
  require_part(cluster, part);
  const int hosts = part.hosts();
  return AllReduce(cluster, part, bytes).to_servers(servers > 0 ? std::min(servers, hosts) : hosts);
}

}  // namespace belfry
