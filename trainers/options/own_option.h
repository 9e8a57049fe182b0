// Options of one program or of one trainer, beside those of all.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "belfry/framework/base/json.h"

namespace belfry {

struct OptionRow;
struct WrittenFlag;

// An option that sets a variable. That of a program is set before data and model are made. The
// variable's value before is the default, which --help shows. The variable must outlive the run.
//   double rate = 0;
//   OwnOption{"dropout", &rate, "probability that an element becomes zero",
//             {"a number >= 0 and below 1", [](double x) { return x >= 0 && x < 1; }}}
struct OwnOption {
  using Variable = std::variant<bool*, std::int64_t*, double*, std::string*>;

  // The numbers that an option takes. `wanted` describes them in errors.
  struct Range {
    std::string wanted;
    bool (*allowed)(double) = nullptr;  // null: all finite numbers
  };

  std::string name;  // of small letters, digits and '_'
  Variable variable;
  std::string text;  // for --help
  Range range = {};
  std::string unit = "";  // for --help: "RATE"; "": the type decides
  // The strings that an option takes, which --help lists; empty: any string.
  std::vector<std::string> choices = {};
  // Of a trainer's option: another value gives other results. A program's own are known by the
  // model and the data that they make.
  bool changes_results = true;

  JsonValue value() const;
  // Sets the variable. Throws FlagError for a value that is not allowed.
  void read(const WrittenFlag& written) const;
  // Its row. Throws InvalidArgument for a malformed name, a null variable, or a default that is not
  // allowed; `whose` begins the error: "the recipe's flag".
  OptionRow row(std::string_view whose) const;
};

// --label_smoothing of classifiers, from 0 to 1.
OwnOption label_smoothing_flag(double& share);

// The values by name, in order.
JsonValue values_of_own(std::span<const OwnOption> options);

}  // namespace belfry
