#include "belfry/trainers/device_flag.h"

#include <algorithm>

#include "belfry/framework/device.h"
#include "belfry/framework/gpus.h"
#include "belfry/trainers/flag_values.h"

namespace belfry {
namespace {

// "CPU" or, for dry runs, "GPU".
std::string known_type(std::string_view wanted, std::string_view item, bool dry_run) {
  const std::string type = upper(wanted);
  if (type == "CPU" || (type == "GPU" && dry_run)) return type;
  throw FlagError(cat("--devices: '", item, "': there are no ", type, " devices",
                      type == "GPU" ? cat(": ", why_no_gpu_devices(),
                                          "; use cpu:N, or plan for GPUs with --dry_run")
                                    : "; use cpu:N"));
}

DeviceSpec parse_named_device(std::string_view item, bool dry_run) {
  require<FlagError>(!item.empty(), "--devices: an item of the list is empty");
  const DeviceSpec spec = as_flag("--devices", [&] { return DeviceSpec(item); });
  require<FlagError>(spec.type && spec.index, "--devices: '", item,
                     "' does not name one device; say e.g. /cpu:1");
  const std::string type = known_type(*spec.type, item, dry_run);
  require<FlagError>(*spec.index < kMostDevices, "--devices: '", item, "': at most ", kMostDevices,
                     " devices");
  const DeviceSpec full = DeviceSpec::local(type, *spec.index);
  require<FlagError>(spec.matches(full), "--devices: '", item,
                     "' is not in this process: ", full.str(), " is");
  return full;
}

}  // namespace

std::vector<DeviceSpec> parse_devices(std::string_view text, bool dry_run) {
  std::vector<DeviceSpec> devices;
  if (text.find(',') == text.npos && !text.starts_with('/')) {
    const std::size_t colon = text.find(':');
    require<FlagError>(colon != text.npos, "--devices: '", text,
                       "' is neither a count (cpu:4) nor a name (/cpu:1)");
    const std::string type = known_type(text.substr(0, colon), text, dry_run);
    const std::string_view number = text.substr(colon + 1);
    const auto count =
        parse_number<std::int64_t>(cat("--devices: '", text, "': '", number, "'"), number);
    require<FlagError>(count >= 1 && count <= kMostDevices, "--devices: '", text,
                       "' is a count; it must be between 1 and ", kMostDevices,
                       " (one device is named with a slash: /", text, ")");
    for (int i = 0; i < count; ++i) devices.push_back(DeviceSpec::local(type, i));
    return devices;
  }
  int cpus = 0, gpus = 0;  // that must exist, as numbers are counted from 0
  for (const std::string_view item : split(text, ',')) {
    const DeviceSpec device = parse_named_device(item, dry_run);
    require<FlagError>(std::ranges::find(devices, device) == devices.end(), "--devices: ", device,
                       " is named twice; each tower needs its own");
    devices.push_back(device);
    int& most = device.type == "CPU" ? cpus : gpus;
    most = std::max(most, *device.index + 1);
    require<FlagError>(cpus + gpus <= kMostDevices, "--devices: ", cpus, " CPU and ", gpus,
                       " GPU devices are needed for these numbers; at most ", kMostDevices,
                       " are possible");
  }
  return devices;
}

std::map<std::string, int> device_count(std::span<const DeviceSpec> devices) {
  std::map<std::string, int> count;
  for (const DeviceSpec& device : devices) {
    require(device.type && device.index, "device '", device, "' needs a type and an index");
    int& n = count[*device.type];
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
