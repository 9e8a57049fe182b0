// The flags of `auto`, for every program that can choose a strategy.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/graph/device_spec.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/options/option.h"

namespace belfry {

struct MachineDescription;

// The rows of --links, the file that describes the machine ("": none), and of --auto_any, which is
// AutoOptions::any.
Option<std::string> links_option();
Option<bool> auto_any_option();
inline constexpr const char* kAutoGroup = "What auto chooses by";

// What to write instead of --remeasure, which earlier versions had.
inline constexpr const char* kInsteadOfRemeasure =
    "this flag was removed, as nothing is measured at the start; use --links=FILE with what "
    "`belfry machine` writes";

// The end of the error for programs that compare strategies: they need a machine for `auto`.
inline constexpr const char* kChoosesByLinks =
    " predicts for a machine; describe it by --links=FILE (`belfry machine` writes one), or leave "
    "auto out";

// Adds these flags as a separate group.
void add_auto_flags(FlagParser& parser, std::string& links, bool& any);

// Throws FlagError if one of the flags was given although the program makes no choice: the error
// suggests `wish`, a flag that requests a choice ("--allreduce=auto").
void check_auto_flags(const std::string& links, bool any, bool chooses, std::string_view wish);

// The machine of the file `links`. Throws FlagError naming the file if its machine has fewer
// devices, or if its devices have separate memories and those of the run are logical GPUs.
std::shared_ptr<const MachineDescription> machine_for(const std::string& links,
                                                      const std::vector<DeviceSpec>& devices,
                                                      int logical_gpus);

}  // namespace belfry
