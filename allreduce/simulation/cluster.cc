#include "belfry/allreduce/simulation/cluster.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

constexpr double kMicro = 1e-6, kGiga = 1e9, kTera = 1e12;
constexpr std::int64_t kMostDevicesOfHost = 1024;

// Reads the members of one object: numbers with their sources.
class SourcedNumbers {
 public:
  SourcedNumbers(const JsonValue& json, std::string what, const std::set<std::string>& sources,
                 const std::vector<std::string>& known)
      : json_(json), what_(std::move(what)), sources_(sources) {
    for (const auto& [name, value] : json.members())
      require(std::ranges::find(known, name) != known.end(), value.where(), "\"", what_,
              "\" of a machine has an unknown member \"", shown(name), "\"",
              did_you_mean(name, known), " (members: ", join(known), ")");
  }

  // The number times `unit`; `otherwise` if it is not there.
  double number(const char* name, double unit, double otherwise) const {
    const JsonValue* const member = json_.find(name);
    return member ? checked(is_of(*member), name) * unit : otherwise;
  }
  double needed(const char* name, double unit) const {
    return checked(is_of(needed_member(name)), name) * unit;
  }
  const JsonValue& needed_member(const char* name) const { return json_.at(name); }
  int count(const char* name, int otherwise) const {
    const JsonValue* const member = json_.find(name);
    if (!member) return otherwise;
    const JsonValue& is = is_of(*member);
    const std::int64_t value = is.integer();
    require(value >= 1 && value <= kMostDevicesOfHost, is.where(), "\"", name,
            "\" of a machine is ", value, ", not between 1 and ", kMostDevicesOfHost);
    return static_cast<int>(value);
  }
  LinkRate rate(const char* name) const {
    const JsonValue* const member = json_.find(name);
    if (!member) return {};
    const JsonValue& is = is_of(*member);
    if (is.kind() != JsonValue::Kind::kArray) return LinkRate(positive(is, name) * kGiga);
    std::vector<LinkRate::Point> points;
    for (const JsonValue& item : is.items()) {
      require(item.items().size() == 2, item.where(), "a point of \"", name, "\" is [bytes, gbps]");
      const LinkRate::Point point{positive(item.items().front(), name),
                                  positive(item.items().back(), name) * kGiga};
      require(points.empty() || point.bytes > points.back().bytes, item.where(), "the bytes of \"",
              name, "\" do not grow");
      points.push_back(point);
    }
    require(!points.empty(), is.where(), "\"", name, "\" has no points");
    return LinkRate(std::move(points));
  }
  std::map<std::string, double> numbers(const char* name, double unit) const {
    std::map<std::string, double> result;
    if (const JsonValue* const member = json_.find(name))
      for (const auto& [key, value] : member->members())
        result[key] = positive(is_of(value), key.c_str()) * unit;
    return result;
  }

 private:
  // What a number is, once its source is known.
  const JsonValue& is_of(const JsonValue& sourced) const {
    const JsonValue& from = sourced.at("from");
    require(sources_.contains(from.text()), from.where(), "the source \"", shown(from.text()),
            "\" is not among \"sources\"");
    for (const auto& [name, value] : sourced.members())
      require(name == "is" || name == "from", value.where(), "a number has an unknown member \"",
              shown(name), "\" (members: is, from)");
    return sourced.at("is");
  }
  double checked(const JsonValue& is, const char* name) const {
    const double value = is.number();
    require(std::isfinite(value) && value >= 0, is.where(), "\"", name, "\" of \"", what_,
            "\" must be at least 0, not ", value);
    return value;
  }
  double positive(const JsonValue& is, const char* name) const {
    const double value = checked(is, name);
    require(value > 0, is.where(), "\"", name, "\" of \"", what_, "\" must be above 0");
    return value;
  }

  const JsonValue& json_;
  std::string what_;
  const std::set<std::string>& sources_;
};

void parse_network(const SourcedNumbers& numbers, ClusterDescription& cluster) {
  const double nics = numbers.needed("nics", 1), efficiency = numbers.number("efficiency", 1, 1);
  numbers.needed_member("nic_gbps");
  cluster.network.latency = numbers.needed("latency_us", kMicro);
  require(nics * efficiency > 0, "a network without bandwidth");
  cluster.network.rate = numbers.rate("nic_gbps").times(nics * efficiency);
}

}  // namespace

double LinkRate::at(double bytes) const {
  const auto above = std::ranges::lower_bound(points_, bytes, {}, &Point::bytes);
  if (above == points_.begin()) return points_.front().rate;
  if (above == points_.end()) return points_.back().rate;
  const Point& low = *std::prev(above);
  const double share = std::log(bytes / low.bytes) / std::log(above->bytes / low.bytes);
  return std::exp(std::lerp(std::log(low.rate), std::log(above->rate), share));
}

LinkRate LinkRate::times(double factor) const {
  std::vector<Point> points = points_;
  for (Point& point : points) point.rate *= factor;
  return LinkRate(std::move(points));
}

double ClusterDescription::ring_rate(double devices, double bytes) const {
  const double rate = link.rate.at(bytes);
  const bool has_bridges = devices_per_island > 0 && devices > devices_per_island;
  return has_bridges ? std::min(rate, bridge_rate.at(bytes)) : rate;
}

ClusterDescription parse_cluster(const JsonValue& json) {
  static const std::vector<std::string> known = {"name", "sources", "device", "host", "network"};
  for (const auto& [name, value] : json.members())
    require(std::ranges::find(known, name) != known.end(), value.where(),
            "a machine has an unknown member \"", shown(name), "\"", did_you_mean(name, known),
            " (members: ", join(known), ")");
  std::set<std::string> sources;
  for (const auto& [name, value] : json.at("sources").members()) {
    require(!value.text().empty(), value.where(), "the source \"", shown(name), "\" is empty");
    sources.insert(name);
  }
  ClusterDescription cluster{.name = json.at("name").text()};
  const SourcedNumbers device(json.at("device"), "device", sources,
                              {"memory_gb", "memory_gbps", "tflops", "launch_us", "crowding"});
  cluster.memory_bytes = device.number("memory_gb", kGiga, 0);
  cluster.memory_rate = device.number("memory_gbps", kGiga, 0);
  cluster.flops = device.numbers("tflops", kTera);
  cluster.launch = device.number("launch_us", kMicro, 0);
  cluster.crowding = device.number("crowding", 1, 1);
  require(cluster.crowding >= 1, json.at("device").where(), "\"crowding\" is ", cluster.crowding,
          ", but devices are no faster beside others: it is at least 1");
  const SourcedNumbers host(json.at("host"), "host", sources,
                            {"devices", "latency_us", "gbps", "switch_gbps", "devices_per_island",
                             "bridge_gbps", "feed_gbps", "devices_per_feed", "samples_per_s"});
  json.at("host").at("devices");
  cluster.devices_per_host = host.count("devices", 1);
  cluster.link = {host.number("latency_us", kMicro, 0), host.rate("gbps"),
                  host.rate("switch_gbps")};
  require(cluster.devices_per_host == 1 || !cluster.link.rate.empty(), json.at("host").where(),
          "a host with several devices needs \"gbps\", the rate of the links between them");
  cluster.devices_per_island = host.count("devices_per_island", 0);
  cluster.bridge_rate = host.rate("bridge_gbps");
  require((cluster.devices_per_island == 0) == cluster.bridge_rate.empty(), json.at("host").where(),
          "\"devices_per_island\" and \"bridge_gbps\" need each other");
  cluster.feed_rate = host.number("feed_gbps", kGiga, 0);
  cluster.devices_per_feed = host.count("devices_per_feed", 1);
  cluster.input_rate = host.number("samples_per_s", 1, 0);
  if (const JsonValue* const network = json.find("network"))
    parse_network(SourcedNumbers(*network, "network", sources,
                                 {"latency_us", "nics", "nic_gbps", "efficiency"}),
                  cluster);
  return cluster;
}

}  // namespace belfry
