#include "belfry/allreduce/prediction/machine.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"

namespace belfry {
namespace {

constexpr double kDefaultLaunch = 5, kDefaultBandwidth = 500;

void require_members(const JsonValue& json, const char* what,
                     const std::vector<std::string>& known) {
  for (const auto& [name, value] : json.members())
    require(std::ranges::find(known, name) != known.end(), value.where(), what,
            " has an unknown member \"", shown(name), "\"", did_you_mean(name, known),
            " (members: ", join(known), ")");
}

double number(const JsonValue& json, const char* name, double fallback, bool positive = false) {
  const JsonValue* const value = json.find(name);
  if (!value) return fallback;
  const double result = value->number();
  require(std::isfinite(result) && (positive ? result > 0 : result >= 0), value->where(), "\"",
          name, "\" of a machine must be ", positive ? "above 0" : "at least 0", ", not ", result);
  return result;
}

Link parse_link(const JsonValue& json) {
  json.at("gbps");  // has no default
  Link link{.latency_us = number(json, "latency_us", 0), .gbps = number(json, "gbps", 0, true)};
  if (const JsonValue* bus = json.find("bus")) link.bus = bus->text();
  return link;
}

DeviceSpec parse_device(const JsonValue& json) {
  const std::string& text = json.text();
  const DeviceSpec spec(text);
  require(spec.type && spec.index, json.where(), "'", shown(text),
          "' does not name one device; say e.g. gpu:0");
  require(*spec.index < kMostDevices, json.where(), "'", shown(text), "': a machine has at most ",
          kMostDevices, " devices of a type");
  return DeviceSpec::local(spec.type->str(), *spec.index);
}

void parse_links(const JsonValue& json, MachineDescription& machine) {
  const JsonValue* const links = json.find("links");
  const JsonValue* const others = json.find("other_links");
  if (!links && !others) return;
  const std::size_t count = machine.devices.size();
  require(
      std::ranges::count(machine.devices, "CPU", [](const DeviceSpec& d) { return *d.type; }) <= 1,
      "a machine with links has two cpu devices, which share one memory; name devices with "
      "memories of their own gpu:0, gpu:1, ...");
  machine.links.assign(count, std::vector<Link>(count));
  if (others) {
    require_members(*others, "\"other_links\"", {"latency_us", "gbps", "bus"});
    machine.links.assign(count, std::vector<Link>(count, parse_link(*others)));
  }
  std::set<std::pair<int, int>> seen;
  if (links)
    for (const JsonValue& item : links->items()) {
      require_members(item, "a link", {"devices", "latency_us", "gbps", "bus"});
      const std::list<JsonValue>& ends = item.at("devices").items();
      require(ends.size() == 2, item.where(), "a link has ", ends.size(),
              " devices instead of two");
      const int a = machine.index_of(parse_device(ends.front()));
      const int b = machine.index_of(parse_device(ends.back()));
      require(a != b, item.where(), "a link goes from ", ends.front().text(), " to itself");
      require(seen.insert(std::minmax({a, b})).second, item.where(), "the link between ",
              ends.front().text(), " and ", ends.back().text(), " is there twice");
      machine.links[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] =
          machine.links[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] =
              parse_link(item);
    }
  for (std::size_t i = 0; i < count; ++i) {
    machine.links[i][i] = {};
    for (std::size_t j = 0; j < count; ++j)
      require(i == j || machine.links[i][j].gbps > 0, "no link between ",
              machine.devices[i].short_str(), " and ", machine.devices[j].short_str(),
              "; add one, or \"other_links\"");
  }
}

JsonValue link_json(const DeviceSpec& a, const DeviceSpec& b, const Link& link) {
  const std::string ends[] = {a.short_str(), b.short_str()};
  JsonValue json = JsonValue::object();
  json.set("devices", JsonValue::array(ends))
      .set("latency_us", link.latency_us)
      .set("gbps", link.gbps);
  if (!link.bus.empty()) json.set("bus", link.bus);
  return json;
}

}  // namespace

Bandwidth MachineDescription::bandwidth_at(std::int64_t bytes) const {
  const auto above = std::ranges::lower_bound(bandwidth, bytes, {}, &Bandwidth::bytes);
  if (above == bandwidth.begin()) return bandwidth.front();
  if (above == bandwidth.end()) return bandwidth.back();
  const Bandwidth& low = *std::prev(above);
  const double share = std::log(static_cast<double>(bytes) / static_cast<double>(low.bytes)) /
                       std::log(static_cast<double>(above->bytes) / static_cast<double>(low.bytes));
  return {bytes,
          std::lerp(low.one_gbps, above->one_gbps, share),
          std::lerp(low.all_gbps, above->all_gbps, share),
          std::lerp(low.other_gbps, above->other_gbps, share),
          std::lerp(low.write, above->write, share),
          std::lerp(low.rewrite, above->rewrite, share)};
}

bool MachineDescription::has(const DeviceSpec& device) const {
  return std::ranges::find(devices, device) != devices.end();
}

std::vector<DeviceSpec> MachineDescription::devices_for(const std::vector<DeviceSpec>& run) const {
  if (std::ranges::all_of(run, [this](const DeviceSpec& device) { return has(device); }))
    return run;
  // In a machine with GPUs, strategies use the host, but towers do not.
  std::vector<DeviceSpec> alike;
  std::ranges::copy_if(devices, std::back_inserter(alike),
                       [this](const DeviceSpec& device) { return device.type == devices[0].type; });
  require(run.size() <= alike.size(), "the machine has ", alike.size(), " devices of type ",
          *devices[0].type, ", but ", run.size(), " devices are asked for");
  alike.resize(run.size());
  return alike;
}

int MachineDescription::index_of(const DeviceSpec& device) const {
  const auto found = std::ranges::find(devices, device);
  if (found != devices.end()) return static_cast<int>(found - devices.begin());
  std::vector<std::string> names;
  for (const DeviceSpec& known : devices) names.push_back(known.short_str());
  throw NotFoundError(
      cat("the machine has no device ", device.short_str(), " (devices: ", join(names), ")"));
}

MachineDescription parse_machine(const JsonValue& json) {
  require_members(json, "a machine",
                  {"devices", "workers", "run_us", "wake_us", "launch_us", "wait_us", "share_us",
                   "bandwidth", "links", "other_links"});
  MachineDescription machine;
  for (const JsonValue& name : json.at("devices").items()) {
    const DeviceSpec device = parse_device(name);
    require(std::ranges::find(machine.devices, device) == machine.devices.end(), name.where(),
            device.short_str(), " is there twice");
    machine.devices.push_back(device);
  }
  require(!machine.devices.empty(), "a machine without devices");
  if (const JsonValue* workers = json.find("workers")) {
    require(workers->integer() >= 0 && workers->integer() <= 1024, workers->where(),
            "\"workers\" is ", workers->integer(), ", not between 0 and 1024");
    machine.workers = static_cast<int>(workers->integer());
  }
  machine.run_us = number(json, "run_us", 0);
  machine.launch_us = number(json, "launch_us", kDefaultLaunch);
  machine.wake_us = number(json, "wake_us", 0);
  machine.wait_us = number(json, "wait_us", 0);
  machine.share_us = number(json, "share_us", 0);
  if (const JsonValue* points = json.find("bandwidth"))
    for (const JsonValue& point : points->items()) {
      require_members(point, "a bandwidth",
                      {"bytes", "one_gbps", "all_gbps", "other_gbps", "write", "rewrite"});
      point.at("one_gbps");
      const double one = number(point, "one_gbps", 0, true);
      const std::int64_t bytes = point.at("bytes").integer();
      require(bytes > (machine.bandwidth.empty() ? 0 : machine.bandwidth.back().bytes),
              point.where(), "\"bytes\" of a machine's bandwidths must be above 0 and grow");
      const Bandwidth defaults;
      machine.bandwidth.push_back(
          {bytes, one, number(point, "all_gbps", one, true), number(point, "other_gbps", 0),
           number(point, "write", defaults.write), number(point, "rewrite", defaults.rewrite)});
    }
  if (machine.bandwidth.empty()) machine.bandwidth = {{1, kDefaultBandwidth, kDefaultBandwidth}};
  parse_links(json, machine);
  require(machine.workers == 0 || machine.links.empty(),
          "\"workers\" share one memory, so a machine has them or \"links\", not both");
  return machine;
}

JsonValue to_json(const MachineDescription& machine) {
  JsonValue devices = JsonValue::array(), bandwidth = JsonValue::array(),
            links = JsonValue::array();
  for (const DeviceSpec& device : machine.devices) devices.push(device.short_str());
  for (const Bandwidth& point : machine.bandwidth)
    bandwidth.push(JsonValue::object()
                       .set("bytes", point.bytes)
                       .set("one_gbps", point.one_gbps)
                       .set("all_gbps", point.all_gbps)
                       .set("other_gbps", point.other_gbps)
                       .set("write", point.write)
                       .set("rewrite", point.rewrite));
  for (std::size_t i = 0; i < machine.links.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      links.push(link_json(machine.devices[j], machine.devices[i], machine.links[i][j]));
  JsonValue json = JsonValue::object();
  json.set("devices", std::move(devices))
      .set("workers", machine.workers)
      .set("run_us", machine.run_us)
      .set("launch_us", machine.launch_us)
      .set("wake_us", machine.wake_us)
      .set("wait_us", machine.wait_us)
      .set("share_us", machine.share_us)
      .set("bandwidth", std::move(bandwidth));
  if (!machine.links.empty()) json.set("links", std::move(links));
  return json;
}

}  // namespace belfry
