#include "belfry/trainers/flags/auto_flags.h"

#include <memory>
#include <optional>
#include <utility>

#include "belfry/allreduce/prediction/machine.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {

void add_auto_flags(FlagParser& parser, AutoFlags& flags, bool& any) {
  parser.group("What auto chooses by");
  parser.add("--links", flags.links, "FILE",
             cat("JSON that describes the devices' links [none: they are measured",
                 cache_directory().empty() ? "" : cat(", and kept in ", cache_directory()), "]"));
  parser.add("--remeasure", flags.remeasure,
             "measure them again; sets aside the choice of a checkpoint [false]");
  parser.add("--auto_any", any, "take strategies that are not canonical, too [false]");
}

void check_auto_flags(const AutoFlags& flags, bool any, bool chooses, std::string_view wish) {
  const std::pair<std::string, bool> given[] = {
      {cat("--links=", flags.links), !flags.links.empty()},
      {"--remeasure", flags.remeasure},
      {"--auto_any", any}};
  for (const auto& [flag, is_given] : given)
    require<FlagError>(chooses || !is_given, flag, " is for the choice of a strategy; without ",
                       wish, " there is none");
  require<FlagError>(flags.links.empty() || !flags.remeasure, "--links=", flags.links,
                     " takes the place of a measurement, so there is no use for --remeasure");
}

void check_measurable(const MeasuredDevices& here) {
  try {
    require_measurable(here);
  } catch (const InvalidArgument& error) {
    // A described machine has no logical GPUs.
    throw InvalidArgument(
        cat(error.what(),
            here.logical_gpus > 1 ? "; " : "; describe the machine with --links=FILE, or ",
            "name a strategy"));
  }
}

MachineDescription machine_for(const AutoFlags& flags, const MeasuredDevices& here) {
  if (flags.links.empty()) check_measurable(here);
  MachineDescription machine =
      find_machine(local_file_system(), here, {.links = flags.links, .remeasure = flags.remeasure});
  if (!flags.links.empty())
    as_flag(cat("--links=", flags.links), [&] { return machine.devices_for(here.devices); });
  return machine;
}

std::function<MachineDescription()> machine_finder(const AutoFlags& flags,
                                                   const MeasuredDevices& here) {
  return [found = std::make_shared<std::optional<MachineDescription>>(), flags, here] {
    if (!*found) *found = machine_for(flags, here);
    return **found;
  };
}

}  // namespace belfry
