#include "belfry/trainers/flags/auto_flags.h"

#include "belfry/allreduce/prediction/machine.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/flags/flag_spellings.h"
#include "belfry/trainers/flags/option_flags.h"
#include "belfry/trainers/machine/machine_file.h"
#include "belfry/trainers/options/option_fields.h"

namespace belfry {

Option<std::string> links_option() {
  Option<std::string> option{
      {.name = "links",
       .unit = "FILE",
       .text = "JSON that describes the machine: what belfry machine writes, a file of "
               "docs/links, or of docs/machines",
       .otherwise = "none",
       .trains = true}};
  option.read = [](std::string& links, const WrittenFlag& flag) { links = flag.value; };
  return option;
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

void add_auto_flags(FlagParser& parser, std::string& links, bool& any) {
  parser.group(kAutoGroup);
  add_option(parser, links_option(), links);
  add_option(parser, auto_any_option(), any);
  parser.add_spellings({only("remeasure", "", "", kInsteadOfRemeasure)});
}

void check_auto_flags(const std::string& links, bool any, bool chooses, std::string_view wish) {
  constexpr std::string_view kWithout = " is for the choice of a strategy; without ";
  require<FlagError>(chooses || links.empty(), "--links=", links, kWithout, wish, " there is none");
  require<FlagError>(!any || (chooses && !links.empty()), "--auto_any", kWithout, wish,
                     " and --links=FILE there is none");
}

std::shared_ptr<const MachineDescription> machine_for(const std::string& links,
                                                      const std::vector<DeviceSpec>& devices,
                                                      int logical_gpus) {
  auto machine =
      std::make_shared<const MachineDescription>(read_machine(local_file_system(), links));
  as_flag(cat("--links=", links), [&] { return machine->devices_for(devices); });
  require<FlagError>(machine->links.empty() || logical_gpus == 1, "--links=", links,
                     " describes devices with a memory each, not --logical_gpus=", logical_gpus,
                     " that share one; leave one of them out");
  return machine;
}

}  // namespace belfry
