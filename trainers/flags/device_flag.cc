#include "belfry/trainers/flags/device_flag.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/flags/option_flags.h"

namespace belfry {
namespace {

std::string full_names(std::span<const DeviceSpec> devices) {
  std::vector<std::string> names;
  for (const DeviceSpec& device : devices) names.push_back(device.str());
  return join(names, ",");
}

// Refuses `needed` GPUs if the machine has fewer.
void require_gpus(const WrittenFlag& list, int needed, std::int64_t logical, const Gpus& found) {
  const int count = found.count();
  const std::string name = list.shown_name();
  const bool ours = name == "--devices";
  const std::string what = cat(name, ours ? cat(": '", list.value, "'") : "");
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

// All GPUs, or all logical ones that share them.
std::vector<DeviceSpec> all_gpus(const WrittenFlag& list, int logical) {
  const std::string why_none = why_no_gpu_devices();
  require<FlagError>(why_none.empty(), list.written, ": there are no GPU devices: ", why_none,
                     "; use cpu:N, or plan for N GPUs with gpu:N and --dry_run");
  return parse_devices(cat("gpu:", gpus().count() * logical), list.shown_name());
}

std::vector<DeviceSpec> devices_of(const WrittenFlag& list, int logical) {
  return lower(list.value) == kAllGpus ? all_gpus(list, logical)
                                       : parse_devices(list.value, list.shown_name());
}

std::string devices_here() { return std::string(gpus().count() > 0 ? kAllGpus : "cpu:1"); }

}  // namespace

Options<DeviceFlags> device_options(const std::string& devices) {
  Option<DeviceFlags> list{
      {.name = "devices",
       .unit = "LIST",
       .text = cat("cpu:N for N logical devices, gpu:N for the first N GPUs, gpu:all; or names: "
                   "/cpu:1, gpu:0,gpu:2; at most ",
                   kMostDevices),
       .otherwise = devices.empty() ? "all GPUs, else cpu:1" : devices,
       .elsewhere = {"gpus", "ngpus"}}};
  list.read = [](DeviceFlags& flags, const WrittenFlag& flag) {
    flags.devices = devices_of(flag, 1);  // resolve_devices() counts logical ones
  };
  list.value = [](const DeviceFlags& flags) { return JsonValue(full_names(flags.devices)); };
  list.start = [devices] { return devices.empty() ? devices_here() : devices; };
  Option<DeviceFlags> logical{
      {.name = "logical_gpus",
       .unit = "N",
       .text = "N logical GPUs share each physical one: gpu:i is on physical GPU i / N",
       .otherwise = "1"}};
  logical.read = [](DeviceFlags& flags, const WrittenFlag& flag) {
    read_integer(flag, 1, kMostDevices, flags.logical_gpus);
  };
  Option<DeviceFlags> deterministic{
      {.name = "deterministic",
       .text = "on GPUs, compute by algorithms that give the same bits each time, though others "
               "may be faster; on CPUs all do",
       .otherwise = "false",
       .noted = false,
       .reported = true}};
  deterministic.read = [](DeviceFlags& flags, const WrittenFlag& flag) {
    flags.deterministic = read_switch(flag.written, flag.value);
  };
  deterministic.value = [](const DeviceFlags& flags) { return JsonValue(flags.deterministic); };
  Option<DeviceFlags> algorithms{
      {.name = "algorithms",
       .unit = "FILE",
       .text = "read the choices of GPU algorithms from FILE, and add those that it lacks; without "
               "FILE each run chooses anew",
       .otherwise = "none",
       .scope = Scope::kThisCall,
       .own_process = true}};
  algorithms.read = [](DeviceFlags& flags, const WrittenFlag& flag) {
    flags.algorithms = flag.value;
  };
  return {list, logical, deterministic, algorithms};
}

void add_device_flags(FlagParser& parser, const DeviceFlags& flags, const std::string& devices) {
  add_options_for(parser, device_options(devices), flags);
}

std::vector<FlagSpelling> device_spellings() {
  const auto devices = [](const WrittenFlag&, const WrittenFlags& line) {
    const WrittenFlag* const number = line.find("num_gpus");
    const WrittenFlag* const type = line.find("device");
    if (type)
      require<FlagError>(lower(type->value) == "cpu" || lower(type->value) == "gpu", type->written,
                         " is neither cpu nor gpu");
    int count = 1;
    if (number) read_integer(*number, 1, kMostDevices, count);
    const std::string written =
        cat(number ? number->written : "", number && type ? " " : "", type ? type->written : "");
    // Beside --devices alone it may repeat what --devices says.
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
    std::string list;  // of this machine
    for (const FlagSpelling& spelling : device_spellings())
      if (const WrittenFlag* const flag = line.find(spelling.name))
        for (const WrittenFlag& ours : spelling.translate(*flag, line)) list = ours.value;
    list = line.value("devices", list.empty() ? devices_here() : list);
    int logical = 1;
    if (const WrittenFlag* const flag = line.find("logical_gpus"))
      read_integer(*flag, 1, kMostDevices, logical);
    return static_cast<int>(devices_of({"devices", list, {}}, logical).size());
  } catch (const FlagError&) {
    return 0;
  }
}

void resolve_devices(const FlagParser& parser, const DeviceFlags& flags, bool plans,
                     const std::function<const Gpus&()>& find) {
  const WrittenFlag list = parser.flag("--devices");
  flags.devices = devices_of(list, flags.logical_gpus);
  const auto counts = device_count(flags.devices);
  const auto gpus = counts.find("GPU");
  const bool on_gpus = gpus != counts.end();
  require<FlagError>(!parser.given("--logical_gpus") || on_gpus,
                     parser.flag("--logical_gpus").written, " has no use for ", list.written,
                     ", which names no GPU; say e.g. --devices=gpu:", flags.logical_gpus);
  if (parser.given("--algorithms")) {
    const std::string written = parser.flag("--algorithms").written;
    require<FlagError>(on_gpus, written, " has no use for ", list.written,
                       ", which names no GPU: only there is a choice of algorithms");
    require<FlagError>(!plans, written, " has no use for a plan, which chooses none; leave it out");
  }
  if (on_gpus && !plans) require_gpus(list, gpus->second, flags.logical_gpus, find());
}

}  // namespace belfry
