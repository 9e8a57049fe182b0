#include "belfry/trainers/device_flag.h"

#include <algorithm>

#include "belfry/framework/device.h"
#include "belfry/trainers/flag_parser.h"

namespace belfry {
namespace {

std::string known_type(std::string_view wanted, std::string_view item) {
  std::string type = upper(wanted);
  require<FlagError>(type == "CPU" || type == "GPU", "--devices: '", item, "': there are no ", type,
                     " devices; use cpu:N or gpu:N");
  return type;
}

DeviceSpec parse_named_device(std::string_view item) {
  require<FlagError>(!item.empty(), "--devices: an item of the list is empty");
  const DeviceSpec spec = as_flag("--devices", [&] { return DeviceSpec(item); });
  require<FlagError>(spec.type && spec.index, "--devices: '", item,
                     "' does not name one device; say e.g. /cpu:1");
  const std::string type = known_type(spec.type->str(), item);
  require<FlagError>(*spec.index < kMostDevices, "--devices: '", item, "': at most ", kMostDevices,
                     " devices");
  const DeviceSpec full = DeviceSpec::local(type, *spec.index);
  require<FlagError>(spec.matches(full), "--devices: '", item,
                     "' is not in this process: ", full.str(), " is");
  return full;
}

std::vector<DeviceSpec> parse_count(std::string_view text) {
  const std::size_t colon = text.find(':');
  require<FlagError>(colon != text.npos, "--devices: '", text,
                     "' is neither a count (cpu:4) nor a name (/cpu:1)");
  const std::string type = known_type(text.substr(0, colon), text);
  const std::string_view number = text.substr(colon + 1);
  const auto count =
      parse_number<std::int64_t>(cat("--devices: '", text, "': '", number, "'"), number);
  require<FlagError>(count >= 1 && count <= kMostDevices, "--devices: '", text,
                     "' is a count; it must be between 1 and ", kMostDevices,
                     " (one device is named with a slash: /", text, ")");
  std::vector<DeviceSpec> devices;
  for (int i = 0; i < count; ++i) devices.push_back(DeviceSpec::local(type, i));
  return devices;
}

// Refuses `needed` GPUs that the machine lacks.
void require_gpus(const RawDevices& raw, int needed, std::int64_t logical, const Gpus& found) {
  const int count = found.count();
  require<FlagError>(count == 0 || needed <= count * logical, "--devices: '", raw.list, "' needs ",
                     needed, " GPUs, but this machine has ", count,
                     logical > 1 ? cat(", as ", count * logical, " logical ones") : "",
                     "; use --logical_gpus=", (needed + count - 1) / std::max(count, 1),
                     ", which makes so many of each, or plan with a training program's --dry_run");
  const std::string why_not = why_no_gpu_devices(found);
  require<FlagError>(why_not.empty(), "--devices: '", raw.list,
                     "': there are no GPU devices: ", why_not,
                     "; use cpu:N, or plan for GPUs with a training program's --dry_run");
}

}  // namespace

void add_device_flags(FlagParser& parser, RawDevices& raw) {
  parser.add("--devices", raw.list, "LIST",
             "cpu:N for N logical devices, gpu:N for the first N GPUs; or names: /cpu:1, "
             "gpu:0,gpu:2 [cpu:2]");
  parser.add("--logical_gpus", raw.logical_gpus, "N",
             "so many logical GPUs share each physical one: gpu:i is on physical GPU i / N [1]");
  parser.add("--deterministic", raw.deterministic,
             "on GPUs, compute by algorithms that give the same bits each time, though others may "
             "be faster; on CPUs all do [false]");
  parser.add("--algorithms", raw.algorithms, "FILE",
             "take the algorithms for GPUs from there, and write those that it lacks to it; else "
             "they are chosen anew in each run [none]");
}

DeviceFlags read_devices(const RawDevices& raw, bool plans,
                         const std::function<const Gpus&()>& find) {
  DeviceFlags flags;
  read_integer("--logical_gpus", raw.logical_gpus, 1, kMostDevices, flags.logical_gpus);
  flags.devices = parse_devices(raw.list);
  const auto counts = device_count(flags.devices);
  const auto gpus = counts.find("GPU");
  require<FlagError>(raw.logical_gpus.empty() || gpus != counts.end(),
                     "--logical_gpus=", raw.logical_gpus, " has no use for --devices=", raw.list,
                     ", which names no GPU; say e.g. --devices=gpu:", flags.logical_gpus);
  flags.deterministic = raw.deterministic;
  flags.algorithms = raw.algorithms;
  require<FlagError>(raw.algorithms.empty() || gpus != counts.end(),
                     "--algorithms=", raw.algorithms, " has no use for --devices=", raw.list,
                     ", which names no GPU: only there is a choice of algorithms");
  require<FlagError>(raw.algorithms.empty() || !plans, "--algorithms=", raw.algorithms,
                     " has no use for a plan, which chooses none; leave it out");
  if (gpus != counts.end() && !plans) require_gpus(raw, gpus->second, flags.logical_gpus, find());
  return flags;
}

std::vector<DeviceSpec> parse_devices(std::string_view text) {
  if (text.find(',') == text.npos && !text.starts_with('/')) return parse_count(text);
  std::vector<DeviceSpec> devices;
  int cpus = 0, gpus = 0;  // that must exist, as numbers are counted from 0
  for (const std::string_view item : split(text, ',')) {
    const DeviceSpec device = parse_named_device(item);
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
