// Common code of tests of training flags.
#pragma once
#include <sstream>
#include <string>
#include <vector>

#include "belfry/tests/support/two_devices.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {

// The flags of a program, on two CPU devices unless the arguments name others.
inline TrainFlags parse(std::vector<const char*> arguments,
                        FlagDefaults defaults = {.program = "test"}) {
  test::name_two_devices(arguments);
  return parse_flags(arguments, defaults);
}

inline constexpr const char* kAccepted = "(accepted)";

inline std::string refusal(std::vector<const char*> arguments) {
  try {
    parse(std::move(arguments));
  } catch (const FlagError& error) {
    return error.what();
  }
  return kAccepted;
}

// Text as if no line broke: one blank where there are blanks or lines end.
inline std::string without_breaks(const std::string& text) {
  std::istringstream words(text);
  std::string all;
  for (std::string word; words >> word;) all += (all.empty() ? "" : " ") + word;
  return all;
}

}  // namespace belfry
