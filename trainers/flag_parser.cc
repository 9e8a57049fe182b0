#include "belfry/trainers/flag_parser.h"

#include <algorithm>
#include <vector>

#include <CLI/CLI.hpp>

#include "belfry/framework/text.h"

namespace belfry {

struct FlagParser::State {
  State(std::string description, std::string program)
      : app(std::move(description), std::move(program)) {}
  CLI::App app;
  std::string group;
};

namespace {

// "--data-dir" "x" -> "--data_dir=x". CLI11 then never mistakes a value for a flag.
std::vector<std::string> normalized(std::span<const char* const> arguments, const CLI::App& app) {
  std::vector<std::string> known, result;
  for (const CLI::Option* option : app.get_options()) known.push_back(option->get_name().substr(2));
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "-h") {
      result.emplace_back("--help");
      continue;
    }
    require<FlagError>(argument.starts_with("--") && argument.size() > 2, "'", argument,
                       "' is no flag; flags look like --batch_size=64 (see --help)");
    const std::size_t equals = std::min(argument.find('='), argument.size());
    std::string name(argument.substr(2, equals - 2));
    std::ranges::replace(name, '-', '_');
    if (std::ranges::find(known, name) == known.end()) {
      const std::string hint = nearest(name, known);
      throw FlagError(cat("unknown flag --", name,
                          hint.empty() ? "; see --help" : cat("; did you mean --", hint, "?")));
    }
    const bool takes_value = app.get_option("--" + name)->get_items_expected_min() > 0;
    std::string value(equals < argument.size() ? argument.substr(equals + 1) : "");
    if (takes_value && equals == argument.size() && i + 1 < arguments.size()) {
      value = arguments[++i];
      require<FlagError>(!value.starts_with("--"), "--", name, " needs a value, but ", value,
                         " follows");
    }
    require<FlagError>(!value.empty() || (!takes_value && equals == argument.size()), "--", name,
                       " needs a value");
    result.push_back(value.empty() ? "--" + name : cat("--", name, "=", value));
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
