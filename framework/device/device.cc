#include "belfry/framework/device/device.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

#include <sched.h>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/cpu_quota.h"
#include "belfry/framework/device/gpu_memory.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/framework/device/session_options.h"
#include "belfry/framework/group/processes.h"

namespace belfry {

namespace {

// Numbers of devices by type, as requested.
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
  // The default CPU does not count.
  require(!cpus_given || counts.cpus + counts.gpus <= kMostDevices, "device_count: ", counts.cpus,
          " CPU and ", counts.gpus, " GPU devices are more than the ", kMostDevices,
          " that are possible");
  return counts;
}

// The physical GPUs that "2,0" names; none for "", which stands for all.
std::vector<int> read_visible(const std::string& list) {
  std::vector<int> ids;
  if (list.empty()) return ids;
  for (const std::string_view item : split(list, ',')) {
    int id = -1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), id);
    require(error == std::errc() && end == item.data() + item.size() && id >= 0,
            "visible_devices: '", item, "' in '", list,
            "' is not the number of a GPU; write numbers from 0 with commas between, e.g. 0,2");
    require(std::ranges::find(ids, id) == ids.end(), "visible_devices: GPU ", id, " is in '", list,
            "' twice");
    ids.push_back(id);
  }
  return ids;
}

// The backend that drives GPUs. Null for dry runs, and if there are no GPUs; then a warning says
// so.
const GpuBackend* find_backend(const SessionOptions& options) {
  if (options.dry_run) return nullptr;
  const std::string why_not = why_no_gpu_devices();
  if (why_not.empty()) return gpus().backend();
  log_warning("device_count: there are no GPU devices: ", why_not);
  return nullptr;
}

// The physical GPUs to use, in the order of memory spaces; all that exist if none is named.
std::vector<int> physical_gpus(const GpuBackend& backend, std::vector<int> visible) {
  const int count = backend.count();
  for (const int id : visible)
    require(id < count, "visible_devices: there is no GPU ", id, "; this machine has ", count);
  if (!visible.empty()) return visible;
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// physical[i] is the GPU of memory space 1 + i.
std::unique_ptr<Device> make_device(DeviceSpec spec, std::int64_t limit, int logical,
                                    const GpuBackend* backend, const std::vector<int>& physical) {
  const bool gpu = spec.is_gpu();
  const int space = gpu ? 1 + *spec.index / logical : 0;
  if (!backend) return std::make_unique<Device>(std::move(spec), limit, space, gpu);
  const int id = gpu ? physical[static_cast<std::size_t>(space - 1)] : -1;
  const std::string refusal = gpu ? backend->refusal(id) : "";
  require<DeviceError>(refusal.empty(), refusal);
  auto device = std::make_unique<Device>(std::move(spec), limit, space, false,
                                         gpu ? gpu_memory(*backend, id) : pinned_memory(*backend));
  if (gpu) device->backend = backend;
  device->gpu = id;
  return device;
}

}  // namespace

bool Device::reaches(const Device& other) const {
  if (memory_space == other.memory_space || declared || other.declared) return true;
  return backend && other.backend && backend->peer_access(gpu, other.gpu);
}

ProcessPlace process_place(const SessionOptions& options) {
  if (options.processes) return options.processes->place();
  ProcessPlace place = options.planned_place;
  require(place.size == 1 || options.dry_run, "planned_place: ", place.size,
          " processes can be planned by a dry run alone; a run has those that a launcher starts");
  require(0 <= place.rank && place.rank < place.size, "planned_place: there is no rank ",
          place.rank, " of ", place.size);
  if (place.size % options.planned_per_host == 0) place.per_host = options.planned_per_host;
  return place;
}

std::vector<std::unique_ptr<Device>> make_devices(const SessionOptions& options) {
  Counts counts = count_devices(options.device_count);
  const int logical = options.logical_gpus;
  require(logical >= 1 && logical <= kMostDevices, "logical_gpus: a physical GPU can be 1 to ",
          kMostDevices, " logical ones, not ", logical);
  std::vector<int> physical = read_visible(options.visible_devices);
  const GpuBackend* const backend = counts.gpus > 0 ? find_backend(options) : nullptr;
  if (backend) physical = physical_gpus(*backend, std::move(physical));
  if (!backend && !options.dry_run) counts.gpus = 0;
  if (!physical.empty())
    counts.gpus = static_cast<int>(
        std::min<std::int64_t>(counts.gpus, std::ssize(physical) * std::int64_t{logical}));
  std::vector<DeviceSpec> specs;
  for (int i = 0; i < counts.cpus; ++i) specs.push_back(DeviceSpec::local("CPU", i));
  for (int i = 0; i < counts.gpus; ++i) specs.push_back(DeviceSpec::local("GPU", i));
  for (DeviceSpec& spec : specs) spec = spec.of_process(process_place(options));
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
  for (std::size_t d = 0; d < specs.size(); ++d)
    devices.push_back(make_device(std::move(specs[d]), limits[d], logical,
                                  counts.gpus > 0 ? backend : nullptr, physical));
  return devices;
}

std::string unreachable_gpus(const SessionOptions& options) {
  const int count = count_devices(options.device_count).gpus;
  const GpuBackend* const backend = count > 1 && !options.dry_run ? gpus().backend() : nullptr;
  if (!backend) return "";
  std::vector<int> used = physical_gpus(*backend, read_visible(options.visible_devices));
  const int physical = (count + options.logical_gpus - 1) / options.logical_gpus;
  used.resize(std::min(used.size(), static_cast<std::size_t>(physical)));
  for (const int from : used)
    for (const int to : used)
      if (from != to && !backend->peer_access(from, to))
        return cat("GPU ", from, " does not reach the memory of GPU ", to);
  return "";
}

std::string device_mapping(const std::vector<std::unique_ptr<Device>>& devices) {
  std::string text;
  for (const auto& device : devices) {
    if (!device->on_gpu()) continue;
    if (device->backend) {
      const GpuInfo gpu = device->backend->info(device->gpu);
      text += cat(device->spec, " -> device: ", device->gpu, ", name: ", gpu.name,
                  ", pci bus id: ", gpu.pci_bus_id, ", compute capability: ", gpu.major, ".",
                  gpu.minor, "\n");
      continue;
    }
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
  const int cores = CPU_COUNT(&set);
  static const std::optional<double> quota = cpu_quota();
  return quota ? std::clamp(static_cast<int>(*quota), 1, cores) : cores;
}

}  // namespace belfry
