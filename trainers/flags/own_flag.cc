#include "belfry/trainers/flags/own_flag.h"

#include <algorithm>
#include <limits>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

bool can_be_a_name(std::string_view name) {
  const auto small = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto other = [](char c) { return (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && small(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return small(c) || other(c); });
}

void check(const FlagParser& parser, const OwnFlag& flag) {
  const std::string what = cat("the recipe's flag '", shown(flag.name), "'");
  require(can_be_a_name(flag.name), what,
          " needs a name of small letters, digits and '_', which begins with a letter");
  require(flag.name != "help" && !parser.has("--" + flag.name), what,
          " has the name of another flag; choose another one");
  require(std::visit([](auto* variable) { return variable != nullptr; }, flag.variable), what,
          " has no variable to set");
}

// For each type: what errors ask for, how a value is read, and the unit in --help.

std::string wanted(const OwnFlag& flag, std::string_view otherwise) {
  return flag.range.wanted.empty() ? std::string(otherwise) : flag.range.wanted;
}

bool is_allowed(const OwnFlag& flag, double number) {
  return !flag.range.allowed || flag.range.allowed(number);
}

void read(const OwnFlag&, const WrittenFlag& written, bool& to) {
  to = read_switch(written.written, written.value);
}

void read(const OwnFlag& flag, const WrittenFlag& written, std::int64_t& to) {
  using Limits = std::numeric_limits<std::int64_t>;
  const std::string asked = wanted(flag, "a whole number that is allowed");
  std::int64_t number = 0;
  try {
    read_integer(written, Limits::min(), Limits::max(), number);
  } catch (const FlagError&) {
    if (flag.range.wanted.empty()) throw;
    throw FlagError(cat(written.written, " is not ", asked));
  }
  require<FlagError>(is_allowed(flag, static_cast<double>(number)), written.written, " is not ",
                     asked);
  to = number;
}

void read(const OwnFlag& flag, const WrittenFlag& written, double& to) {
  const auto any = [](double) { return true; };
  read_number(written, wanted(flag, "a finite number"),
              flag.range.allowed ? flag.range.allowed : any, to);
}

void read(const OwnFlag& flag, const WrittenFlag& written, std::string& to) {
  const bool allowed =
      flag.choices.empty() || std::ranges::find(flag.choices, written.value) != flag.choices.end();
  require<FlagError>(allowed, written.written, " is none of ", join(flag.choices),
                     allowed ? "" : did_you_mean(written.value, flag.choices));
  to = written.value;
}

std::string unit_of(const bool&) { return ""; }
std::string unit_of(const std::int64_t&) { return "N"; }
std::string unit_of(const double&) { return "X"; }
std::string unit_of(const std::string&) { return "TEXT"; }

template <class T>
void add(FlagParser& parser, const OwnFlag& flag, T& variable) {
  const std::string written = cat(variable);
  // The default is read as if it had been written, so that nothing starts with a value that no flag
  // could give.
  if (!written.empty()) {
    try {
      read(flag, {flag.name, written, cat("--", flag.name, "=", written)}, variable);
    } catch (const FlagError& error) {
      throw InvalidArgument(cat("the recipe's flag has a default that cannot be: ", error.what()));
    }
  }
  const std::string unit = unit_of(variable);
  parser.add(
      "--" + flag.name, [flag, &variable](const WrittenFlag& line) { read(flag, line, variable); },
      unit.empty() || flag.unit.empty() ? unit : flag.unit,
      cat(join(flag.choices, "|"), flag.choices.empty() ? "" : ": ", flag.text, " [",
          written.empty() ? "none" : written, "]"));
}

}  // namespace

OwnFlag::Value OwnFlag::value() const {
  return std::visit([](const auto* held) { return Value(*held); }, variable);
}

OwnFlag label_smoothing_flag(double& share) {
  return {.name = "label_smoothing",
          .variable = &share,
          .text = "share of the target that is spread evenly over all classes",
          .range = {"a number from 0 to 1", [](double x) { return x >= 0 && x <= 1; }}};
}

void add_own_flags(FlagParser& parser, std::span<const OwnFlag> flags) {
  if (!flags.empty()) parser.group("Of this program");
  for (const OwnFlag& flag : flags) {
    check(parser, flag);
    std::visit([&](auto* variable) { add(parser, flag, *variable); }, flag.variable);
  }
}

OwnValues values_of(std::span<const OwnFlag> flags) {
  OwnValues values;
  for (const OwnFlag& flag : flags) values.emplace_back(flag.name, flag.value());
  return values;
}

}  // namespace belfry
