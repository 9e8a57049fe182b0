// Options that only one program or one trainer has, in addition to the common ones.
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

// An option that sets a variable. A program's options are set before data and model are made. The
// initial value of the variable is the default, which --help shows. The variable must outlive the
// run.
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

  std::string name;  // lower-case letters, digits and '_'
  Variable variable;
  std::string text;  // for --help
  Range range = {};
  std::string unit = "";  // for --help: "RATE"; "": the type decides
  // The strings that an option takes, which --help lists; empty: any string.
  std::vector<std::string> choices = {};
  // Choices that stand for other options, which are read first: those that are given win.
  struct Choice {
    std::string name;
    std::vector<std::string> options;  // "layers=12"
  };
  std::vector<Choice> stands_for = {};
  // For a trainer's option: whether another value gives other results. For a program's option the
  // model and the data show that.
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
