// Common code of tests of training flags.
#pragma once
#include <string>
#include <vector>

#include "belfry/trainers/program/flags.h"

namespace belfry {

inline TrainFlags parse(std::vector<const char*> arguments,
                        FlagDefaults defaults = {.program = "test"}) {
  return parse_flags(arguments, defaults);
}

inline std::string refusal(std::vector<const char*> arguments) {
  try {
    parse(std::move(arguments));
  } catch (const FlagError& error) {
    return error.what();
  }
  return "(accepted)";
}

}  // namespace belfry
