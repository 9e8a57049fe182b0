#include "belfry/trainers/device_flag.h"

#include <algorithm>

#include "belfry/framework/device.h"
#include "belfry/trainers/flag_parser.h"

namespace belfry {
namespace {

// The items of a list, with errors that begin with the flag.
class ListParser {
 public:
  explicit ListParser(std::string_view flag) : flag_(flag) {}

  DeviceSpec named(std::string_view item) const {
    check(!item.empty(), "an item of the list is empty");
    const DeviceSpec spec = as_flag(flag_, [&] { return DeviceSpec(item); });
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
        cat(flag_, ": '", shown(text), "': '", shown(number), "'"), number);
    check(count >= 1 && count <= kMostDevices, "'", shown(text),
          "' is a count; it must be between 1 and ", kMostDevices,
          " (one device is named with a slash: /", shown(text), ")");
    std::vector<DeviceSpec> devices;
    for (int i = 0; i < count; ++i) devices.push_back(DeviceSpec::local(type, i));
    return devices;
  }

  template <class... Parts>
  void check(bool condition, const Parts&... why) const {
    require<FlagError>(condition, flag_, ": ", why...);
  }

 private:
  std::string known_type(std::string_view wanted, std::string_view item) const {
    std::string type = upper(wanted);
    check(type == "CPU" || type == "GPU", "'", shown(item), "': there are no ", shown(type),
          " devices; use cpu:N or gpu:N");
    return type;
  }

  std::string_view flag_;
};

// Refuses `needed` GPUs that the machine lacks.
void require_gpus(const RawDevices& raw, int needed, std::int64_t logical, const Gpus& found) {
  const int count = found.count();
  const bool ours = raw.list.name() == "--devices";
  const std::string what = cat(raw.list.name(), ours ? cat(": '", raw.list.text(), "'") : "");
  require<FlagError>(count == 0 || needed <= count * logical, what, " needs ", needed,
                     " GPUs, but this machine has ", count,
                     logical > 1 ? cat(", as ", count * logical, " logical ones") : "",
                     "; use --logical_gpus=", (needed + count - 1) / std::max(count, 1),
                     ", which makes so many of each, or plan with a training program's --dry_run");
  const std::string why_not = why_no_gpu_devices(found);
  require<FlagError>(why_not.empty(), what, ": there are no GPU devices: ", why_not, "; use ",
                     ours ? "cpu:N" : "--device=cpu, for logical devices on the CPU",
                     ", or plan for GPUs with a training program's --dry_run");
}

}  // namespace

void add_device_flags(FlagParser& parser, RawDevices& raw) {
  parser.add("--devices", raw.list, "LIST",
             cat("cpu:N for N logical devices, gpu:N for the first N GPUs; or names: /cpu:1, "
                 "gpu:0,gpu:2; at most ",
                 kMostDevices, " [", raw.list.text(), "]"));
  parser.add("--logical_gpus", raw.logical_gpus, "N",
             "so many logical GPUs share each physical one: gpu:i is on physical GPU i / N [1]");
  parser.add("--deterministic", raw.deterministic,
             "on GPUs, compute by algorithms that give the same bits each time, though others may "
             "be faster; on CPUs all do [false]");
  parser.add("--algorithms", raw.algorithms, "FILE",
             "take the algorithms for GPUs from there, and write those that it lacks to it; else "
             "they are chosen anew in each run [none]");
}

std::vector<FlagSpelling> device_spellings() {
  const auto devices = [](const WrittenFlag&, const WrittenFlags& line) {
    const WrittenFlag* const number = line.find("num_gpus");
    const WrittenFlag* const type = line.find("device");
    if (type)
      require<FlagError>(lower(type->value) == "cpu" || lower(type->value) == "gpu", type->written,
                         " is neither cpu nor gpu");
    int count = 1;
    if (number) read_integer(value_of(*number), 1, kMostDevices, count);
    const std::string written =
        cat(number ? number->written : "", number && type ? " " : "", type ? type->written : "");
    // Beside --devices alone it may just say what that says.
    const std::string name = type ? lower(type->value) : "gpu";
    if (!number && lower(line.value("devices")).find(name) != std::string::npos)
      return std::vector<WrittenFlag>{};
    return std::vector<WrittenFlag>{{"devices", cat(name, ":", count), written}};
  };
  return {
      {"num_gpus", "N", "--devices=gpu:N, with --device=cpu --devices=cpu:N", devices},
      {"device", "cpu|gpu", "what --num_gpus [1] counts [gpu]", devices},
      refused("gpu_indices", "name devices by --devices=gpu:1,gpu:0; a ring goes in that order")};
}

int count_devices(const WrittenFlags& line) {
  try {
    std::string list = RawDevices().list.text();
    for (const FlagSpelling& spelling : device_spellings())
      if (const WrittenFlag* const flag = line.find(spelling.name))
        for (const WrittenFlag& ours : spelling.translate(*flag, line)) list = ours.value;
    return static_cast<int>(parse_devices(line.value("devices", list)).size());
  } catch (const FlagError&) {
    return 0;
  }
}

DeviceFlags read_devices(const RawDevices& raw, bool plans,
                         const std::function<const Gpus&()>& find) {
  DeviceFlags flags;
  read_integer(raw.logical_gpus, 1, kMostDevices, flags.logical_gpus);
  flags.devices = parse_devices(raw.list.text(), raw.list.name());
  const auto counts = device_count(flags.devices);
  const auto gpus = counts.find("GPU");
  require<FlagError>(!raw.logical_gpus.given() || gpus != counts.end(), raw.logical_gpus,
                     " has no use for ", raw.list,
                     ", which names no GPU; say e.g. --devices=gpu:", flags.logical_gpus);
  flags.deterministic = raw.deterministic;
  flags.algorithms = raw.algorithms.text();
  require<FlagError>(!raw.algorithms.given() || gpus != counts.end(), raw.algorithms,
                     " has no use for ", raw.list,
                     ", which names no GPU: only there is a choice of algorithms");
  require<FlagError>(!raw.algorithms.given() || !plans, raw.algorithms,
                     " has no use for a plan, which chooses none; leave it out");
  if (gpus != counts.end() && !plans) require_gpus(raw, gpus->second, flags.logical_gpus, find());
  return flags;
}

std::vector<DeviceSpec> parse_devices(std::string_view text, std::string_view flag) {
  const ListParser parser(flag);
  if (text.find(',') == text.npos && !text.starts_with('/')) return parser.counted(text);
  std::vector<DeviceSpec> devices;
  int cpus = 0, gpus = 0;  // that must exist, as numbers are counted from 0
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
