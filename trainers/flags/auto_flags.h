// The flags of `auto`, in every program that can be asked to choose a strategy.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/machine/measure_machine.h"

namespace belfry {

struct AutoFlags {
  std::string links;       // a file that describes the machine; "": it is measured
  bool remeasure = false;  // even if an earlier measurement was kept
};

// Adds --links, --remeasure and --auto_any as a group of their own.
// `any` is AutoOptions::any.
void add_auto_flags(FlagParser& parser, AutoFlags& flags, bool& any);

// Throws FlagError if one of them was given though nothing is to be chosen, naming `wish`, what
// would ask for a choice ("--allreduce=auto"), or if two contradict each other.
void check_auto_flags(const AutoFlags& flags, bool any, bool chooses, std::string_view wish);

// require_measurable(), with what to do instead of measuring.
void check_measurable(const MeasuredDevices& here);

// find_machine() for these flags. Throws FlagError naming a file whose machine has fewer devices.
MachineDescription machine_for(const AutoFlags& flags, const MeasuredDevices& here);
// The same as a function, which finds it at its first call, for all modes that choose.
std::function<MachineDescription()> machine_finder(const AutoFlags& flags,
                                                   const MeasuredDevices& here);

}  // namespace belfry
