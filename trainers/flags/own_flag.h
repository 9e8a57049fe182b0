// Flags of one program, beside those of every training program.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "belfry/trainers/flags/flag_parser.h"

namespace belfry {

// A flag that sets a variable of the program before data and model are made. The variable's value
// before is the default, which --help shows. The variable must outlive train().
//   double rate = 0;
//   OwnFlag{"dropout", &rate, "probability that an element becomes zero",
//           {"a number >= 0 and below 1", [](double x) { return x >= 0 && x < 1; }}}
struct OwnFlag {
  using Variable = std::variant<bool*, std::int64_t*, double*, std::string*>;
  using Value = std::variant<bool, std::int64_t, double, std::string>;

  // The numbers that a flag takes. `wanted` describes them in errors.
  struct Range {
    std::string wanted;
    bool (*allowed)(double) = nullptr;  // null: all finite numbers
  };

  std::string name;  // of small letters, digits and '_', without dashes
  Variable variable;
  std::string text;  // for --help
  Range range = {};
  std::string unit = "";  // for --help: "RATE"; "": the type decides
  // The strings that a flag takes, which --help lists; empty: any string.
  std::vector<std::string> choices = {};

  Value value() const;
};

// --label_smoothing of classifiers, from 0 to 1.
OwnFlag label_smoothing_flag(double& share);

// Adds the flags in a group of their own. Throws InvalidArgument for a name that is malformed or
// that another flag has, a null variable, or a default that is not allowed.
void add_own_flags(FlagParser& parser, std::span<const OwnFlag> flags);

// Names and values of flags, in order.
using OwnValues = std::vector<std::pair<std::string, OwnFlag::Value>>;
OwnValues values_of(std::span<const OwnFlag> flags);

}  // namespace belfry
