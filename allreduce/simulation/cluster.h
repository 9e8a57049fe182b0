// Machines that need not exist here: hosts with devices, their links, and a network.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"

namespace belfry {

// Bytes per second of a link, by the bytes of a transfer.
class LinkRate {
 public:
  struct Point {
    double bytes = 0, rate = 0;
  };
  LinkRate() = default;
  explicit LinkRate(double rate) : points_{{1, rate}} {}
  explicit LinkRate(std::vector<Point> points) : points_(std::move(points)) {}  // bytes grow

  // Interpolates in the logarithms of both. Outside the list it is the rate of that end.
  double at(double bytes) const;
  bool empty() const { return points_.empty(); }
  LinkRate times(double factor) const;

 private:
  std::vector<Point> points_;
};

// What devices of one host, or hosts, reach each other by.
struct ClusterLink {
  double latency = 0;  // seconds, per hop
  LinkRate rate = {};  // of a device in its host; of a whole host in the network
  // If switches of the link add, the rate at which a device sends its tensor and gets the sum.
  LinkRate switch_rate = {};
};

struct ClusterDescription {
  std::string name;
  // Device.
  double memory_bytes = 0;              // 0: unknown
  double memory_rate = 0;               // bytes per second
  std::map<std::string, double> flops;  // per second, by precision: "f32", "tf32", "f16"
  double launch = 0;                    // seconds of a host per kernel
  double crowding = 1;  // arithmetic takes so many times as long while others of the host compute
  // Host.
  int devices_per_host = 1;
  ClusterLink link;            // between devices of a host, or of an island if it has several
  int devices_per_island = 0;  // 0: a host is one island
  LinkRate bridge_rate = {};   // of the link from one island to the next, if there are several
  double feed_rate = 0;        // bytes per second from the host to devices; 0: no limit
  int devices_per_feed = 1;    // that share a feed
  double input_rate = 0;       // samples per second that a host prepares; 0: no limit
  // Network.
  ClusterLink network;  // rate empty: there is one host

  bool has_network() const { return !network.rate.empty(); }
  // The rate of the slowest link of a ring through so many devices of a host.
  double ring_rate(double devices, double bytes) const;
};

// {"name": "two of a kind",
//  "sources": {"sheet": "https://...", "fit": "fitted to ..."},
//  "device": {"memory_gb", "memory_gbps", "tflops": {"f16": ...}, "launch_us", "crowding"},
//  "host": {"devices", "latency_us", "gbps", "switch_gbps", "devices_per_island", "bridge_gbps",
//           "feed_gbps", "devices_per_feed", "samples_per_s"},
//  "network": {"latency_us", "nics", "nic_gbps", "efficiency"}}
// Each number is {"is": 18, "from": "sheet"}, and names one of the sources: no number goes without.
// Rates ("gbps") count 1e9 bytes, and may be a list by size: {"is": [[1048576, 36.2], ...],
// "from": "fit"}, with bytes that grow. "devices" and, in a network, "latency_us", "nics" and
// "nic_gbps" have to be there; all else may be left out. Throws InvalidArgument naming the member
// that is missing, unknown or out of range, or whose source is.
ClusterDescription parse_cluster(const JsonValue& json);

}  // namespace belfry
