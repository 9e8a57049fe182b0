#include "belfry/trainers/flags/auto_flags.h"

#include <memory>
#include <optional>
#include <utility>

#include "belfry/allreduce/prediction/machine.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/flags/option_flags.h"
#include "belfry/trainers/options/option_fields.h"

namespace belfry {

Options<AutoFlags> auto_options() {
  return {
      any_text(&AutoFlags::links,
               {.name = "links",
                .unit = "FILE",
                .text = "JSON that describes the devices' links",
                .otherwise = "none: they are measured",
                .here = cache_directory().empty() ? "" : cat("(kept in ", cache_directory(), ")"),
                .trains = true,
                .noted = false}),
      on_off(&AutoFlags::remeasure,
             {.name = "remeasure",
              .text = "measure the links again, and ignore the choice that a checkpoint keeps",
              .otherwise = "false",
              .trains = true,
              .noted = false})};
}

Option<bool> auto_any_option() {
  Option<bool> option{{.name = "auto_any",
                       .text = "take strategies that are not canonical, too",
                       .otherwise = "false",
                       .trains = true}};
  option.read = [](bool& any, const WrittenFlag& flag) {
    any = read_switch(flag.written, flag.value);
  };
  return option;
}

void add_auto_flags(FlagParser& parser, AutoFlags& flags, bool& any) {
  parser.group(kAutoGroup);
  add_options(parser, auto_options(), flags);
  add_option(parser, auto_any_option(), any);
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
