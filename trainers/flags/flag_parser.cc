#include "belfry/trainers/flags/flag_parser.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/run_identity.h"
#include "belfry/trainers/flags/flag_spellings.h"

namespace belfry {
namespace {

constexpr std::size_t kHelpColumns = 100, kHelpIndent = 30;

// `text` in lines of at most `columns`, broken at blanks and, in long lists, behind a '|'.
std::string wrapped(std::string_view text, std::size_t columns) {
  std::string lines;
  std::size_t used = 0;
  for (std::string_view word : split(text, ' ')) {
    const bool fits = used > 0 && used + 1 + word.size() <= columns;
    if (used > 0) lines += fits ? ' ' : '\n';
    used = fits ? used + 1 : 0;
    for (std::size_t bar;
         word.size() > columns && (bar = word.rfind('|', columns - 1)) != word.npos;
         word.remove_prefix(bar + 1))
      lines += cat(word.substr(0, bar + 1), '\n');
    used += word.size();
    lines += word;
  }
  return lines;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() {
    column_width(kHelpIndent);
    label("Positionals", "Arguments");
    label("REQUIRED", "");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description(), kHelpColumns - kHelpIndent);
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), kHelpColumns) + "\n";
  }
  // Leaves one empty line between groups, where CLI11 prints two.
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
    for (std::size_t gap; (gap = help.find("\n\n\n")) != help.npos;) help.erase(gap, 1);
    help.erase(help.find_last_not_of('\n') + 1);
    return help + "\n";
  }
};

// "iters" of "--iters" and of "-n,--iters".
std::string long_name(std::string_view names) {
  return std::string(names.substr(names.rfind("--") + 2));
}

std::string version_text(const std::string& program) {
  return cat(program, " of Belfry ", agreed_version().value);
}

// Calls f(). An error of it is about the flag, unless it is about another.
template <class F>
void naming_option(const std::string& name, const F& f) {
  try {
    f();
  } catch (const FlagError& error) {
    ErrorFields fields = error.fields();
    if (!fields.option.empty()) throw;
    fields.option = name;
    std::throw_with_nested(FlagError(std::move(fields)));
  }
}

constexpr std::size_t kLongestName = 100;  // longer names are not compared with ours for a hint

// What other programs call our flags.
constexpr std::pair<std::string_view, const char*> kNamesElsewhere[] = {
    {"lr", "learning_rate"},
    {"bs", "batch_size"},
    {"batch", "batch_size"},
    {"wd", "weight_decay"},
    {"gpus", "devices"},
    {"ngpus", "devices"},
    {"workers", "data_workers"},
    {"num_workers", "data_workers"},
    {"steps", "max_steps"},
    {"num_steps", "max_steps"},
    {"max_epochs", "epochs"},
    {"output_dir", "run_dir"},
    {"log_dir", "run_dir"},
    {"logdir", "run_dir"},
    {"checkpoint", "resume"},
    {"max_grad_norm", "clip_norm"},
    {"gradient_clip_val", "clip_norm"},
    {"amp", "precision"},
    {"dtype", "precision"},
    {"patience", "early_stop"},
    {"warmup", "warmup_steps"},
    {"ema", "moving_average"},
    {"dataset", "data_dir"},
    {"data", "data_dir"}};

}  // namespace

struct FlagParser::State {
  State(std::string description, std::string program)
      : app(std::move(description), std::move(program)) {
    app.formatter(std::make_shared<HelpFormatter>());
  }

  // Lists a flag in --help. Without a unit it is a switch.
  void list(const std::string& names, const std::string& unit, const std::string& text) {
    if (unit.empty())
      app.add_flag(names, text)->group(group);
    else
      app.add_option(names, unread, text)->type_name(unit)->group(group);
    note(names, unit.empty());
  }
  void note(const std::string& names, bool is_switch) {
    const std::string name = long_name(names);
    switches[name] = is_switch;
    if (names[1] != '-') letters[names[1]] = name;
  }

  // An argument without a name. If it has `values`, it takes all arguments that are left.
  struct Argument {
    std::string unit;  // "FOLDER"
    Needed needed = Needed::kNo;
    std::string* value = nullptr;
    std::vector<std::string>* values = nullptr;
  };
  void list(Argument argument, const std::string& text) {
    CLI::Option* const option = argument.values
                                    ? app.add_option(argument.unit, *argument.values, text)
                                    : app.add_option(argument.unit, *argument.value, text);
    option->type_name("")->required(argument.needed == Needed::kYes);
    arguments.push_back(std::move(argument));
  }
  bool takes_another(std::size_t given) const {
    return given < arguments.size() || (!arguments.empty() && arguments.back().values);
  }

  // The part of an error that says what a word of the command line should have been.
  std::string wanted() const {
    if (!arguments.empty())
      return cat("neither a flag nor the argument ", arguments[0].unit, " (see --help)");
    return switches.contains("batch_size") ? "no flag; flags look like --batch_size=64 (see --help)"
                                           : "no flag (see --help)";
  }

  CLI::App app;
  std::string group = "Options";         // without one, CLI11 hides them
  std::map<std::string, bool> switches;  // by long name: whether it takes no value
  std::map<char, std::string> letters;   // to long names
  struct Bound {
    WrittenFlag otherwise;  // has no value if the flag has no default
    Read read;
  };
  std::vector<Bound> bound;
  std::vector<FlagSpelling> spellings;
  std::string unread;  // CLI11 writes --help, and reads nothing
  std::vector<Argument> arguments;
  WrittenFlags line;  // in our spelling
};

// Reads arguments one after another.
class FlagParser::Reader {
 public:
  Reader(State& state, std::span<const char* const> arguments, std::size_t of_file)
      : state_(state), arguments_(arguments), of_file_(of_file) {}

  WrittenFlags read() {
    WrittenFlags line;
    for (next_ = 0; next_ < arguments_.size();) {
      is_of_file_ = next_ < of_file_;
      const std::string_view argument = arguments_[next_++];
      const bool dash = argument.size() > 1 && argument[0] == '-';
      if (dash && argument[1] != '-') {
        line.add(letter(argument));
      } else if (dash && argument.size() > 2) {
        line.add(name(argument));
      } else {
        require<FlagError>(!state_.arguments.empty() && !argument.empty() && argument[0] != '-',
                           "'", shown(argument), "' is ", state_.wanted());
        require<FlagError>(state_.takes_another(given_.size()), "'", shown(argument),
                           "' is one argument too many (see --help)");
        given_.emplace_back(argument);
      }
    }
    return line;
  }

  // Sets the variables of the arguments that read() found.
  void set_arguments() const {
    std::size_t at = 0;
    for (const State::Argument& argument : state_.arguments) {
      require<FlagError>(at < given_.size() || argument.needed == Needed::kNo, "there is no ",
                         argument.unit, " (see --help)");
      if (argument.values)
        argument.values->assign(given_.begin() + static_cast<std::ptrdiff_t>(at), given_.end());
      else if (at < given_.size())
        *argument.value = given_[at++];
    }
  }

 private:
  // "-n8", "-n=8" or "-n".
  WrittenFlag letter(std::string_view argument) {
    const auto found = state_.letters.find(argument[1]);
    require<FlagError>(found != state_.letters.end(), "'", shown(argument), "' is ",
                       state_.wanted());
    std::optional<std::string> value;
    if (const std::string_view rest = argument.substr(2); !rest.empty())
      value = rest.substr(rest.starts_with('=') ? 1 : 0);
    return flag(found->second, std::string(argument.substr(0, 2)), ' ', std::move(value));
  }

  // "--data-dir=x" or "--data-dir".
  WrittenFlag name(std::string_view argument) {
    const std::size_t equals = std::min(argument.find('='), argument.size());
    std::string name(argument.substr(2, equals - 2));
    std::ranges::replace(name, '-', '_');
    std::optional<std::string> value;
    if (equals < argument.size()) value = argument.substr(equals + 1);
    if (state_.switches.contains(name)) return flag(name, "--" + name, '=', std::move(value));
    if (const std::string off = value ? "" : switched_off(name); !off.empty())
      return {off, "false", "--" + name};
    const std::string hint = hint_for(name);
    throw FlagError(
        about_option(name, "unknown flag --", shown(name),
                     hint.empty() ? "; see --help" : cat("; did you mean --", hint, "?")));
  }

  // The name that was meant by an unknown one; "" if nobody knows.
  std::string hint_for(const std::string& name) const {
    const std::vector<std::string> listed = listed_names();
    for (const auto& [elsewhere, ours] : kNamesElsewhere)
      if (name == elsewhere && std::ranges::find(listed, ours) != listed.end()) return ours;
    return name.size() > kLongestName ? "" : nearest(name, listed);
  }

  // The switch that "nodry_run" or "no_dry_run" turns off; "" if there is none.
  std::string switched_off(std::string_view name) const {
    if (!name.starts_with("no")) return "";
    name.remove_prefix(name.starts_with("no_") ? 3 : 2);
    const auto found = state_.switches.find(std::string(name));
    return found != state_.switches.end() && found->second ? found->first : "";
  }

  // The names that --help lists.
  std::vector<std::string> listed_names() const {
    std::vector<std::string> names;
    for (const auto& [name, is_switch] : state_.switches) {
      const auto spelling = std::ranges::find(state_.spellings, name, &FlagSpelling::name);
      if (spelling == state_.spellings.end() || !spelling->text.empty()) names.push_back(name);
    }
    return names;
  }

  WrittenFlag flag(const std::string& name, std::string written, char separator,
                   std::optional<std::string> value) {
    const bool is_switch = state_.switches.at(name);
    if (is_switch && !value) return {name, "true", std::move(written), is_of_file_};
    if (!value && next_ < arguments_.size()) {
      value = arguments_[next_++];
      if (value->starts_with("--"))
        throw FlagError(
            about_option(name, written, " needs a value, but ", shown(*value), " follows"));
    }
    if (!value || value->empty()) throw FlagError(about_option(name, written, " needs a value"));
    written += separator + shown(*value);
    if (is_switch)
      naming_option(name, [&] { value = read_switch(written, *value) ? "true" : "false"; });
    return {name, std::move(*value), std::move(written), is_of_file_};
  }

  State& state_;
  std::span<const char* const> arguments_;
  std::size_t of_file_, next_ = 0;
  bool is_of_file_ = false;
  std::vector<std::string> given_;  // arguments without a name
};

FlagParser::FlagParser(std::string description, std::string program)
    : state_(new State(std::move(description), std::move(program))) {}
FlagParser::~FlagParser() = default;

void FlagParser::group(std::string name) { state_->group = std::move(name); }

void FlagParser::add(const std::string& names, Read read, const std::string& unit,
                     const std::string& text, const std::string& otherwise) {
  state_->list(names, unit, text);
  const std::string name = long_name(names);
  state_->bound.push_back({{name, otherwise, cat("--", name, "=", otherwise)}, std::move(read)});
}

void FlagParser::add(const std::string& names, std::string& value, const std::string& unit,
                     const std::string& text) {
  add(
      names, [&value](const WrittenFlag& flag) { value = flag.value; }, unit, text);
}

void FlagParser::add(const std::string& names, bool& value, const std::string& unit,
                     const std::string& text) {
  add(
      names, [&value](const WrittenFlag& flag) { value = read_switch(flag.written, flag.value); },
      unit, text);
}

void FlagParser::add(const std::string& names, bool& value, const std::string& text) {
  add(names, value, "", text);
}

void FlagParser::add_argument(const std::string& unit, std::string& value, const std::string& text,
                              Needed needed) {
  state_->list({.unit = unit, .needed = needed, .value = &value}, text);
}

void FlagParser::add_arguments(const std::string& unit, std::vector<std::string>& values,
                               const std::string& text) {
  state_->list({.unit = unit, .needed = Needed::kYes, .values = &values}, text);
}

void FlagParser::add_spellings(std::vector<FlagSpelling> spellings) {
  const std::string group = std::exchange(state_->group, "As in tf_cnn_benchmarks");
  for (FlagSpelling& spelling : spellings) {
    if (state_->switches.contains(spelling.name)) continue;
    const std::string flag = "--" + spelling.name;
    if (spelling.text.empty())
      state_->note(flag, spelling.unit.empty());
    else
      state_->list(flag, spelling.unit, spelling.text);
    state_->spellings.push_back(std::move(spelling));
  }
  state_->group = group;
}

std::string FlagParser::parse(std::span<const char* const> arguments, std::size_t of_file) {
  CLI::App& app = state_->app;
  app.set_help_flag("-h,--help", "print this and exit")->group(state_->group);
  state_->note("-h,--help", true);
  app.set_version_flag("--version", version_text(app.get_name()),
                       "print the version of Belfry and exit")
      ->group(state_->group);
  state_->note("--version", true);
  Reader reader(*state_, arguments, of_file);
  const WrittenFlags line = reader.read();
  if (line.value("help") == "true") return app.help();
  if (line.value("version") == "true") return app.version() + "\n";
  state_->line = in_our_spelling(line, state_->spellings);
  for (const WrittenFlag& flag : state_->line.all())
    require<FlagError>(state_->switches.contains(flag.name), flag.written, " stands for --",
                       flag.name, "=", flag.value, ", which this program does not have");
  for (const auto& [otherwise, read] : state_->bound) {
    if (const WrittenFlag* const flag = state_->line.find(otherwise.name))
      naming_option(flag->name, [&, &read = read] { read(*flag); });
    else if (!otherwise.value.empty())
      read(otherwise);
  }
  reader.set_arguments();
  return "";
}

bool FlagParser::has(const std::string& name) const {
  return state_->switches.contains(name.substr(2));
}

bool FlagParser::given(const std::string& name) const {
  return state_->line.find(name.substr(2)) != nullptr;
}

WrittenFlag FlagParser::flag(const std::string& name) const {
  if (const WrittenFlag* const flag = state_->line.find(name.substr(2))) return *flag;
  for (const auto& [otherwise, read] : state_->bound)
    if (otherwise.name == name.substr(2)) return otherwise;
  return {name.substr(2), "", name + "="};
}

std::span<const WrittenFlag> FlagParser::line() const { return state_->line.all(); }

}  // namespace belfry
