#include "belfry/trainers/commands/machine_command.h"

#include <cstdio>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/flags/device_flag.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/machine/measure_machine.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {
namespace {

struct MachineFlags {
  std::string help, json, algorithms;
  MeasuredDevices here;
  bool deterministic = false;
};

MachineFlags parse_machine_flags(std::span<const char* const> arguments,
                                 const std::string& program) {
  MachineFlags flags;
  FlagParser parser(
      "Measures what moving and adding bytes costs on devices of this machine, in a few seconds, "
      "and prints it as JSON, which --links reads.",
      program);
  const DeviceFlags devices{flags.here.devices, flags.here.logical_gpus, flags.deterministic,
                            flags.algorithms};
  add_device_flags(parser, devices);
  parser.add("--threads", flags.here.threads, 0, 1 << 16, "N", "workers; 0: one per core [0]");
  parser.add("--json", flags.json, "FILE", "write it there instead; -: to stdout [-]");
  parser.add_spellings({only("remeasure", "", "", "leave it out: this command always measures")});
  flags.help = parser.parse(arguments);
  if (flags.help.empty()) resolve_devices(parser, devices, false);
  return flags;
}

int run_machine(const MachineFlags& flags) {
  OutputFiles outputs(local_file_system());
  OutputFile* const json = outputs.open("--json", flags.json.empty() ? "-" : flags.json);
  json->write(to_json(measure_machine(flags.here)).str(2) + "\n");
  outputs.finish();
  return 0;
}

}  // namespace

int run_machine_command(std::span<const char* const> arguments, const std::string& program) {
  return subcommand_of(parse_machine_flags, run_machine)(arguments, program);
}

}  // namespace belfry
