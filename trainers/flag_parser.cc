#include "belfry/trainers/flag_parser.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <CLI/CLI.hpp>

#include "belfry/framework/text.h"

namespace belfry {

struct FlagParser::State {
  State(std::string description, std::string program)
      : app(std::move(description), std::move(program)) {}
  CLI::App app;
  std::string group = "Options";  // without one, CLI11 hides them
};

namespace {

// What is known of a flag on the command line: its long name, and the value that its text holds.
struct Given {
  std::string name;
  std::optional<std::string> value;
};

std::string long_name(const CLI::Option& option) { return option.get_name().substr(2); }

// "-n8", "-n=8" or "-n".
Given short_flag(std::string_view argument, const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_snames()) {
      if (!argument.substr(1).starts_with(name)) continue;
      const std::string_view value = argument.substr(1 + name.size());
      if (value.empty()) return {long_name(*option), {}};
      return {long_name(*option), std::string(value.substr(value.starts_with('=') ? 1 : 0))};
    }
  throw FlagError(cat("'", argument, "' is no flag; flags look like --batch_size=64 (see --help)"));
}

// "--data-dir=x" or "--data-dir".
Given long_flag(std::string_view argument, const CLI::App& app) {
  const std::size_t equals = std::min(argument.find('='), argument.size());
  Given given{std::string(argument.substr(2, equals - 2)), {}};
  std::ranges::replace(given.name, '-', '_');
  if (equals < argument.size()) given.value = argument.substr(equals + 1);
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) known.push_back(long_name(*option));
  if (std::ranges::find(known, given.name) != known.end()) return given;
  const std::string hint = nearest(given.name, known);
  throw FlagError(cat("unknown flag --", given.name,
                      hint.empty() ? "; see --help" : cat("; did you mean --", hint, "?")));
}

// "--data-dir" "x" -> "--data_dir=x", "-n" "8" -> "--iters=8". CLI11 then never mistakes a value
// for a flag.
std::vector<std::string> normalized(std::span<const char* const> arguments, const CLI::App& app) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const bool is_long = argument.starts_with("--") && argument.size() > 2;
    require<FlagError>(is_long || (argument.size() > 1 && argument[0] == '-' && argument[1] != '-'),
                       "'", argument, "' is no flag; flags look like --batch_size=64 (see --help)");
    Given given = is_long ? long_flag(argument, app) : short_flag(argument, app);
    const std::string shown = is_long ? "--" + given.name : std::string(argument.substr(0, 2));
    const bool takes_value = app.get_option("--" + given.name)->get_items_expected_min() > 0;
    if (takes_value && !given.value && i + 1 < arguments.size()) {
      given.value = arguments[++i];
      require<FlagError>(!given.value->starts_with("--"), shown, " needs a value, but ",
                         *given.value, " follows");
    }
    require<FlagError>(given.value ? !given.value->empty() : !takes_value, shown, " needs a value");
    result.push_back(given.value ? cat("--", given.name, "=", *given.value) : "--" + given.name);
  }
  return result;
}

}  // namespace

FlagParser::FlagParser(std::string description, std::string program)
    : state_(new State(std::move(description), std::move(program))) {}
FlagParser::~FlagParser() = default;

void FlagParser::group(std::string name) { state_->group = std::move(name); }

void FlagParser::add(const std::string& name, std::string& value, const std::string& unit,
                     const std::string& text) {
  state_->app.add_option(name, value, text)->type_name(unit)->take_last()->group(state_->group);
}

void FlagParser::add(const std::string& name, bool& value, const std::string& text) {
  state_->app.add_flag(name, value, text)->group(state_->group);
}

std::string FlagParser::parse(std::span<const char* const> arguments) {
  CLI::App& app = state_->app;
  app.set_help_flag("-h,--help", "print this and exit")->group(state_->group);
  std::vector<std::string> flags = normalized(arguments, app);
  std::ranges::reverse(flags);  // as CLI11 takes them
  try {
    app.parse(std::move(flags));
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    throw FlagError(error.what());
  }
  return "";
}

bool FlagParser::given(const std::string& name) const {
  return state_->app.get_option(name)->count() > 0;
}

}  // namespace belfry
