#include "belfry/trainers/options/own_option.h"

#include <algorithm>
#include <limits>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/options/option.h"

namespace belfry {
namespace {

bool can_be_a_name(std::string_view name) {
  const auto small = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto other = [](char c) { return (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && small(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return small(c) || other(c); });
}

// For each type: what errors ask for, how a value is read, and the unit in --help.

std::string wanted(const OwnOption& option, std::string_view otherwise) {
  return option.range.wanted.empty() ? std::string(otherwise) : option.range.wanted;
}

bool is_allowed(const OwnOption& option, double number) {
  return !option.range.allowed || option.range.allowed(number);
}

void read_own(const OwnOption&, const WrittenFlag& written, bool& to) {
  to = read_switch(written.written, written.value);
}

void read_own(const OwnOption& option, const WrittenFlag& written, std::int64_t& to) {
  using Limits = std::numeric_limits<std::int64_t>;
  const std::string asked = wanted(option, "a whole number that is allowed");
  std::int64_t number = 0;
  try {
    read_integer(written, Limits::min(), Limits::max(), number);
  } catch (const FlagError&) {
    if (option.range.wanted.empty()) throw;
    throw FlagError(cat(written.written, " is not ", asked));
  }
  require<FlagError>(is_allowed(option, static_cast<double>(number)), written.written, " is not ",
                     asked);
  to = number;
}

void read_own(const OwnOption& option, const WrittenFlag& written, double& to) {
  const auto any = [](double) { return true; };
  read_number(written, wanted(option, "a finite number"),
              option.range.allowed ? option.range.allowed : any, to);
}

void read_own(const OwnOption& option, const WrittenFlag& written, std::string& to) {
  const std::vector<std::string>& choices = option.choices;
  const bool allowed =
      choices.empty() || std::ranges::find(choices, written.value) != choices.end();
  require<FlagError>(allowed, written.written, " is none of ", join(choices),
                     allowed ? "" : did_you_mean(written.value, choices));
  to = written.value;
}

std::string unit_of(const bool&) { return ""; }
std::string unit_of(const std::int64_t&) { return "N"; }
std::string unit_of(const double&) { return "X"; }
std::string unit_of(const std::string&) { return "TEXT"; }

}  // namespace

JsonValue OwnOption::value() const {
  return std::visit([](const auto* held) { return JsonValue(*held); }, variable);
}

void OwnOption::read(const WrittenFlag& written) const {
  std::visit([&](auto* held) { read_own(*this, written, *held); }, variable);
}

OptionRow OwnOption::row(std::string_view whose) const {
  const std::string what = cat(whose, " '", shown(name), "'");
  require(can_be_a_name(name), what,
          " needs a name of small letters, digits and '_', which begins with a letter");
  require(std::visit([](auto* held) { return held != nullptr; }, variable), what,
          " has no variable to set");
  const std::string written = std::visit([](const auto* held) { return cat(*held); }, variable);
  // The default is read as if it had been written, so that nothing starts with a value that no flag
  // could give; into a copy, as several threads may ask for the row.
  if (!written.empty()) {
    try {
      std::visit(
          [&](const auto* held) {
            auto value = *held;
            OwnOption copy = *this;
            copy.variable = &value;
            copy.read({name, written, cat("--", name, "=", written)});
          },
          variable);
    } catch (const FlagError& error) {
      throw InvalidArgument(cat(whose, " has a default that cannot be: ", error.what()));
    }
  }
  const std::string by_type = std::visit([](const auto* held) { return unit_of(*held); }, variable);
  return {.name = name,
          .unit = by_type.empty() || unit.empty() ? by_type : unit,
          .text = cat(join(choices, "|"), choices.empty() ? "" : ": ", text),
          .otherwise = written.empty() ? "none" : written,
          .scope = !stands_for.empty() ? Scope::kThisCall
                   : changes_results   ? Scope::kResults
                                       : Scope::kExecution,
          .stands_for = stands_for};
}

OwnOption label_smoothing_flag(double& share) {
  return {.name = "label_smoothing",
          .variable = &share,
          .text = "share of the target that is spread evenly over all classes",
          .range = {"a number from 0 to 1", [](double x) { return x >= 0 && x <= 1; }}};
}

JsonValue values_of_own(std::span<const OwnOption> options) {
  JsonValue values = JsonValue::object();
  for (const OwnOption& option : options) values.set(option.name, option.value());
  return values;
}

}  // namespace belfry
