#include "belfry/framework/device.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <sched.h>

#include "belfry/framework/gpus.h"
#include "belfry/framework/log.h"
#include "belfry/framework/session.h"

namespace belfry {

namespace {

// Of each type, as asked for.
struct Counts {
  int cpus = 1, gpus = 0;
};

Counts count_devices(const std::map<std::string, int>& asked) {
  Counts counts;
  bool cpus_given = false, gpus_given = false;
  for (const auto& [name, count] : asked) {
    const std::string type = upper(name);
    const bool cpu = type == "CPU";
    require(cpu || type == "GPU", "device_count: '", name,
            "' is not a type of device; the known ones are CPU and GPU");
    require(!std::exchange(cpu ? cpus_given : gpus_given, true), "device_count: ", type,
            " is given twice");
    require(count >= (cpu ? 1 : 0) && count <= kMostDevices, "device_count: ", count, " ", type,
            " devices were asked for; ", cpu ? 1 : 0, " to ", kMostDevices, " are possible");
    (cpu ? counts.cpus : counts.gpus) = count;
  }
  // The CPU that there always is does not count.
  require(!cpus_given || counts.cpus + counts.gpus <= kMostDevices, "device_count: ", counts.cpus,
          " CPU and ", counts.gpus, " GPU devices are more than the ", kMostDevices,
          " that are possible");
  return counts;
}

// How many GPUs "2,0" names, `logical` on each: at most `all`, which "" stands for.
int count_visible(const std::string& list, int logical, int all) {
  if (list.empty()) return all;
  std::set<int> ids;
  for (const std::string_view item : split(list, ',')) {
    int id = -1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), id);
    require(error == std::errc() && end == item.data() + item.size() && id >= 0,
            "visible_devices: '", item, "' in '", list,
            "' is not the number of a GPU; write numbers from 0 with commas between, e.g. 0,2");
    require(ids.insert(id).second, "visible_devices: GPU ", id, " is in '", list, "' twice");
  }
  return static_cast<int>(std::min<std::int64_t>(all, std::ssize(ids) * logical));
}

}  // namespace

std::vector<std::unique_ptr<Device>> make_devices(const SessionOptions& options) {
  Counts counts = count_devices(options.device_count);
  const int logical = options.logical_gpus;
  require(logical >= 1 && logical <= kMostDevices, "logical_gpus: a physical GPU can be 1 to ",
          kMostDevices, " logical ones, not ", logical);
  if (counts.gpus > 0 && !options.dry_run) {
    log_warning("device_count: there are no GPU devices: ", why_no_gpu_devices());
    counts.gpus = 0;
  }
  counts.gpus = count_visible(options.visible_devices, logical, counts.gpus);
  std::vector<DeviceSpec> specs;
  for (int i = 0; i < counts.cpus; ++i) specs.push_back(DeviceSpec::local("CPU", i));
  for (int i = 0; i < counts.gpus; ++i) specs.push_back(DeviceSpec::local("GPU", i));
  std::vector<std::int64_t> limits(specs.size(), 0);
  for (const auto& [name, bytes] : options.memory_limit) {
    const DeviceSpec limited(name);
    bool found = false;
    for (std::size_t d = 0; d < specs.size(); ++d) {
      if (!limited.matches(specs[d])) continue;
      limits[d] = bytes;
      found = true;
    }
    require(found && bytes > 0, "memory_limit: '", name, "' with ", bytes,
            " bytes names no device or no memory");
  }
  std::vector<std::unique_ptr<Device>> devices;
  for (std::size_t d = 0; d < specs.size(); ++d) {
    const bool gpu = specs[d].type == "GPU";
    const int space = gpu ? 1 + *specs[d].index / logical : 0;
    devices.push_back(std::make_unique<Device>(std::move(specs[d]), limits[d], space, gpu));
  }
  return devices;
}

std::string device_mapping(const std::vector<std::unique_ptr<Device>>& devices) {
  std::string text;
  for (const auto& device : devices) {
    if (!device->declared) continue;
    const auto sharers = std::ranges::count(devices, device->memory_space,
                                            [](const auto& d) { return d->memory_space; });
    text += cat(device->spec, " -> declared, absent",
                sharers > 1 ? cat(", on physical GPU ", device->memory_space - 1) : "", "\n");
  }
  return text.empty() ? "Device mapping: no known devices.\n" : cat("Device mapping:\n", text);
}

std::vector<std::string> device_names(const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<std::string> names;
  for (const auto& device : devices) names.push_back(device->spec.str());
  return names;
}

std::string list_devices(const std::vector<std::unique_ptr<Device>>& devices) {
  return cat("[ ", join(device_names(devices)), " ]");
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

}  // namespace belfry
