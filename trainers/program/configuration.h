// Configurations: the flags of a run as JSON, which --config reads and run directories keep.
#pragma once
#include <span>
#include <string>

#include "belfry/framework/base/json.h"

namespace belfry {

class FlagParser;
struct TrainFlags;

// A resumed run keeps its flags about the run directory: takes them from the config.json of the
// run, unless they are given now. Throws FlagError naming the file if it cannot be read.
void take_from_run(TrainFlags& flags);

// Calls FlagParser::parse() with the flags of the file that --config names, followed by the
// arguments. Its members are flags: {"devices": "cpu:2", "epochs": 3, "dry_run": true}. So a flag
// of the command line wins. The objects `chosen` and `about` are for people. Flags about a run
// directory are ignored, with a warning, if no argument names one. Throws FlagError naming the file
// and the line, or the file if the wrong flag is there.
std::string parse_with_config(FlagParser& parser, std::span<const char* const> arguments);

// Adds a flag to a configuration. `chosen` stays last, as people read it last.
void set_flag(JsonValue& config, const std::string& name, const JsonValue& value);

// Implements --print_config.
void print_config(const JsonValue& config);

}  // namespace belfry
