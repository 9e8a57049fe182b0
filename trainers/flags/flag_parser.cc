#include "belfry/trainers/flags/flag_parser.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/arithmetic.h"
#include "belfry/trainers/flags/flag_spellings.h"
#include "belfry/trainers/flags/help_text.h"
#include "belfry/trainers/options/option.h"

namespace belfry {
namespace {

// "iters" of "--iters" and of "-n,--iters".
std::string long_name(std::string_view names) {
  return std::string(names.substr(names.rfind("--") + 2));
}

// 'n' of "-n,--iters"; 0 for "--iters".
char letter_of(std::string_view names) { return names[1] == '-' ? '\0' : names[1]; }

constexpr std::string_view kHelpFlag = "help", kVersionFlag = "version",
                           kCompletionFlag = "completion";

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

}  // namespace

struct FlagParser::State {
  // Lists a flag in --help, unless it has no text. Without a unit it is a switch.
  void list(OptionRow row) {
    switches[row.name] = row.unit.empty();
    if (row.letter) letters[row.letter] = row.name;
    rows.push_back(std::move(row));
  }

  // The flags of all programs. Their words for bash belong to a program, not to a command of one.
  void list_common() {
    if (switches.contains(std::string(kHelpFlag))) return;
    for (const OptionRow& row : rows)
      if (row.group != kOtherProgram) group = row.group;  // they end the last one
    list({.name = std::string(kHelpFlag),
          .text = "print this and exit; --help=GROUP prints one group",
          .group = group,
          .letter = 'h'});
    list({.name = std::string(kVersionFlag),
          .text = "print the version of Belfry and exit",
          .group = group});
    if (program.find(' ') != program.npos) return;
    list({.name = std::string(kCompletionFlag),
          .text = cat("print a script for bash, and exit: source <(", program,
                      " --completion) completes flags and their words"),
          .group = group});
  }

  // An argument without a name. If it has `values`, it takes all arguments that are left.
  struct Argument {
    ArgumentRow row;
    std::string* value = nullptr;
    std::vector<std::string>* values = nullptr;
  };
  bool takes_another(std::size_t given) const {
    return given < arguments.size() || (!arguments.empty() && arguments.back().values);
  }

  // The part of an error that says what a word of the command line should have been.
  std::string wanted() const {
    if (!arguments.empty())
      return cat("neither a flag nor the argument ", arguments[0].row.unit, " (see --help)");
    return switches.contains("batch_size") ? "no flag; flags look like --batch_size=64 (see --help)"
                                           : "no flag (see --help)";
  }

  HelpText help() const {
    HelpText text{.description = description, .program = program, .rows = rows};
    for (const Argument& argument : arguments) text.arguments.push_back(argument.row);
    return text;
  }

  std::string description, program;
  std::string group = "Options";
  std::vector<OptionRow> rows;           // in the order of --help
  std::map<std::string, bool> switches;  // by long name: whether it takes no value
  std::map<char, std::string> letters;   // to long names
  struct Bound {
    WrittenFlag otherwise;  // without a value if the flag has no default
    Read read;
    std::function<std::string()> start;

    bool find_otherwise() {
      otherwise.value = start ? start() : "";
      otherwise.written = cat("--", otherwise.name, "=", otherwise.value);
      return !otherwise.value.empty();
    }
  };
  std::vector<Bound> bound;
  std::vector<FlagSpelling> spellings;
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
      const bool dash = argument.size() > 1 && argument[0] == '-';  // "-" alone is an argument
      if (dash && argument[1] != '-') {
        add_to(line, letter(argument));
      } else if (dash && argument.size() > 2) {
        add_to(line, name(argument));
      } else {
        require<FlagError>(!state_.arguments.empty() && !argument.empty() && argument != "--", "'",
                           shown(argument), "' is ", state_.wanted());
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
      require<FlagError>(at < given_.size() || !argument.row.needed, "there is no ",
                         argument.row.unit, " (see --help)");
      if (argument.values)
        argument.values->assign(given_.begin() + static_cast<std::ptrdiff_t>(at), given_.end());
      else if (at < given_.size())
        *argument.value = given_[at++];
    }
  }

 private:
  void add_to(WrittenFlags& line, WrittenFlag flag) const {
    const auto row = std::ranges::find(state_.rows, flag.name, &OptionRow::name);
    const char separator = row == state_.rows.end() ? '\0' : row->separator;
    separator ? line.append(std::move(flag), separator) : line.add(std::move(flag));
  }

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
    for (const OptionRow& row : state_.rows)
      if (std::ranges::find(row.elsewhere, name) != row.elsewhere.end()) return row.name;
    if (name.size() > kLongestName) return "";
    if (std::string listed = nearest(name, listed_names()); !listed.empty()) return listed;
    for (const OptionRow& row : state_.rows)
      if (!nearest(name, row.older).empty()) return row.name;
    return "";
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
    for (const OptionRow& row : state_.rows)
      if (!row.text.empty()) names.push_back(row.name);
    std::ranges::sort(names);
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
    if (name == kHelpFlag && !parse_switch(*value)) return {name, std::move(*value), written};
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

FlagParser::FlagParser(std::string description, std::string program) : state_(new State) {
  state_->description = std::move(description);
  state_->program = std::move(program);
}
FlagParser::~FlagParser() = default;

void FlagParser::group(std::string name) { state_->group = std::move(name); }

void FlagParser::add(OptionRow row, Read read, std::function<std::string()> start) {
  state_->bound.push_back(
      {{row.name, "", cat("--", row.name, "=")}, std::move(read), std::move(start)});
  if (row.group.empty()) row.group = state_->group;
  state_->list(std::move(row));
}

void FlagParser::add(const std::string& names, Read read, const std::string& unit,
                     const std::string& text, const std::string& otherwise) {
  add({.name = long_name(names), .unit = unit, .text = text, .letter = letter_of(names)},
      std::move(read), [otherwise] { return otherwise; });
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
  state_->arguments.push_back(
      {.row = {.unit = unit, .text = text, .needed = needed == Needed::kYes}, .value = &value});
}

void FlagParser::add_arguments(const std::string& unit, std::vector<std::string>& values,
                               const std::string& text) {
  state_->arguments.push_back(
      {.row = {.unit = unit, .text = text, .needed = true, .several = true}, .values = &values});
}

void FlagParser::add_spellings(std::vector<FlagSpelling> spellings) {
  for (FlagSpelling& spelling : spellings) {
    if (state_->switches.contains(spelling.name)) continue;
    state_->list({.name = spelling.name,
                  .unit = spelling.unit,
                  .text = spelling.text,
                  .group = std::string(kOtherProgram)});
    state_->spellings.push_back(std::move(spelling));
  }
}

std::string FlagParser::parse(std::span<const char* const> arguments, std::size_t of_file) {
  state_->list_common();
  Reader reader(*state_, arguments, of_file);
  const WrittenFlags line = reader.read();
  const std::string asked = line.value(kHelpFlag, "false");
  if (asked == "true") return state_->help().str();
  if (asked != "false") return state_->help().group(asked);
  if (line.value(kVersionFlag) == "true") return version_text(state_->program) + "\n";
  if (line.value(kCompletionFlag) == "true")
    return completion_script(state_->program, state_->rows);
  state_->line = in_our_spelling(line, state_->spellings);
  for (const WrittenFlag& flag : state_->line.all())
    require<FlagError>(state_->switches.contains(flag.name), flag.written, " stands for --",
                       flag.name, "=", flag.value, ", which this program does not have");
  for (State::Bound& bound : state_->bound) {
    if (const WrittenFlag* const flag = state_->line.find(bound.otherwise.name))
      naming_option(flag->name, [&] { bound.read(*flag); });
    else if (bound.find_otherwise())
      bound.read(bound.otherwise);
  }
  reader.set_arguments();
  return "";
}

bool FlagParser::is_of_all(std::string_view name) {
  return name == kHelpFlag || name == kVersionFlag || name == kCompletionFlag;
}

bool FlagParser::has(const std::string& name) const {
  return state_->switches.contains(name.substr(2));
}

bool FlagParser::given(const std::string& name) const {
  return state_->line.find(name.substr(2)) != nullptr;
}

WrittenFlag FlagParser::flag(const std::string& name) const {
  if (const WrittenFlag* const flag = state_->line.find(name.substr(2))) return *flag;
  for (const State::Bound& bound : state_->bound)
    if (bound.otherwise.name == name.substr(2)) return bound.otherwise;
  return {name.substr(2), "", name + "="};
}

std::span<const WrittenFlag> FlagParser::line() const { return state_->line.all(); }

const OptionRow* FlagParser::row(std::string_view name) const {
  const auto found = std::ranges::find(state_->rows, name, &OptionRow::name);
  return found == state_->rows.end() ? nullptr : &*found;
}

std::span<const OptionRow> FlagParser::rows() const { return state_->rows; }

}  // namespace belfry
