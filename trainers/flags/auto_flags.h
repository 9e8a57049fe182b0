// The flags of `auto`, for every program that can choose a strategy.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/machine/measure_machine.h"
#include "belfry/trainers/options/option.h"

namespace belfry {

struct AutoFlags {
  std::string links;       // a file that describes the machine; "": it is measured
  bool remeasure = false;  // measure again even if a measurement was kept
};

// The rows of --links and --remeasure, and of --auto_any, which is AutoOptions::any.
Options<AutoFlags> auto_options();
Option<bool> auto_any_option();
inline constexpr const char* kAutoGroup = "What auto chooses by";

// Adds these flags, and --auto_any, as a separate group.
void add_auto_flags(FlagParser& parser, AutoFlags& flags, bool& any);

// Throws FlagError if two of the flags contradict each other. Also throws it if one was given
// although the program makes no choice: the error suggests `wish`, a flag that requests a choice
// ("--allreduce=auto").
void check_auto_flags(const AutoFlags& flags, bool any, bool chooses, std::string_view wish);

// Calls require_measurable(). Its error then says what to do instead of measuring.
void check_measurable(const MeasuredDevices& here);

// Calls find_machine() for these flags. Throws FlagError naming a file whose machine has fewer
// devices.
MachineDescription machine_for(const AutoFlags& flags, const MeasuredDevices& here);
// A function that finds the machine at its first call, for all modes that choose.
std::function<MachineDescription()> machine_finder(const AutoFlags& flags,
                                                   const MeasuredDevices& here);

}  // namespace belfry
