#include "belfry/trainers/util/device_list.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace {

// Parses the items of a list. Its errors begin with the name of the flag or option.
class ListParser {
 public:
  explicit ListParser(std::string_view name) : name_(name) {}

  DeviceSpec named(std::string_view item) const {
    check(!item.empty(),
          "an item of the list is empty; write names with one comma between, such as cpu:0,cpu:1");
    const DeviceSpec spec = as_flag(name_, [&] { return DeviceSpec(item); });
    check(spec.type && spec.index, "'", shown(item), "' does not name one device; say e.g. /cpu:1");
    const std::string type = known_type(spec.type->str(), item);
    check(*spec.index < kMostDevices, "'", item, "': at most ", kMostDevices, " devices");
    const DeviceSpec full = DeviceSpec::local(type, *spec.index);
    check(spec.matches(full), "'", item, "' is not in this process: ", full, " is");
    return full;
  }

  std::vector<DeviceSpec> counted(std::string_view text) const {
    const std::size_t colon = text.find(':');
    check(colon != text.npos, "'", shown(text), "' is neither a count (cpu:4) nor a name (/cpu:1)");
    const std::string type = known_type(text.substr(0, colon), text);
    const std::string_view number = text.substr(colon + 1);
    const auto count = parse_number<std::int64_t>(
        cat(name_, ": '", shown(text), "': '", shown(number), "'"), number);
    check(count >= 1 && count <= kMostDevices, "'", shown(text),
          "' is a count; it must be between 1 and ", kMostDevices,
          " (one device is named with a slash: /", shown(text), ")");
    std::vector<DeviceSpec> devices;
    for (int i = 0; i < count; ++i) devices.push_back(DeviceSpec::local(type, i));
    return devices;
  }

  template <class... Parts>
  void check(bool condition, const Parts&... why) const {
    require<FlagError>(condition, name_, ": ", why...);
  }

 private:
  std::string known_type(std::string_view wanted, std::string_view item) const {
    std::string type = upper(wanted);
    check(type == "CPU" || type == "GPU", "'", shown(item), "': there are no ", shown(type),
          " devices; use cpu:N or gpu:N");
    return type;
  }

  std::string_view name_;
};

}  // namespace

std::vector<DeviceSpec> parse_devices(std::string_view text, std::string_view name) {
  const ListParser parser(name);
  if (text.find(',') == text.npos && !text.starts_with('/')) return parser.counted(text);
  std::vector<DeviceSpec> devices;
  int cpus = 0, gpus = 0;  // how many must exist, as numbers count from 0
  for (const std::string_view item : split(text, ',')) {
    const DeviceSpec device = parser.named(item);
    parser.check(std::ranges::find(devices, device) == devices.end(), device,
                 " is named twice; each tower needs its own");
    devices.push_back(device);
    int& most = device.type == "CPU" ? cpus : gpus;
    most = std::max(most, *device.index + 1);
    parser.check(cpus + gpus <= kMostDevices, cpus, " CPU and ", gpus,
                 " GPU devices are needed for these numbers; at most ", kMostDevices,
                 " are possible");
  }
  return devices;
}

bool any_gpu(std::span<const DeviceSpec> devices) {
  return std::ranges::any_of(devices, &DeviceSpec::is_gpu);
}

std::map<std::string, int> device_count(std::span<const DeviceSpec> devices) {
  std::map<std::string, int> count;
  for (const DeviceSpec& device : devices) {
    require(device.type && device.index, "device '", device, "' needs a type and an index");
    int& n = count[device.type->str()];
    n = std::max(n, *device.index + 1);
  }
  return count;
}

std::string short_names(std::span<const DeviceSpec> devices) {
  std::vector<std::string> names;
  for (const DeviceSpec& device : devices) names.push_back(device.short_str());
  return join(names, " ");
}

}  // namespace belfry
