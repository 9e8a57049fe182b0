#include "belfry/trainers/program/configuration.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_sizes.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {
namespace {

constexpr std::string_view kAbout = "about";  // what a file is for, for people

// A member of a configuration as a flag.
WrittenFlag flag_of(const std::string& name, const JsonValue& value) {
  const JsonValue::Kind kind = value.kind();
  require<FlagError>(kind != JsonValue::Kind::kArray && kind != JsonValue::Kind::kObject &&
                         kind != JsonValue::Kind::kNull,
                     value.where(), "the value of '", shown(name),
                     "' is no text, number, true or false");
  const std::string text = kind == JsonValue::Kind::kString ? value.text() : value.str();
  require<FlagError>(name.find('\0') == name.npos && text.find('\0') == text.npos, value.where(),
                     "'", shown(name), "' or its value has a zero byte, which no flag can have");
  return {name, text, cat("--", name, "=", text), /*of_file=*/true};
}

std::string with_underscores(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

// A list is for a flag that may be given several times.
std::vector<std::string> arguments_in(const FlagParser& parser, const std::string& path) {
  return naming_flag<FlagError>(cat("--config=", shown(path)), [&] {
    const std::vector<std::byte> bytes = local_file_system().read(path, kMostJsonBytes);
    const JsonValue config =
        JsonValue::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    std::vector<std::string> result;
    std::map<std::string, std::string> names;  // as they are written, by the flag
    for (const auto& [name, value] : config.members()) {
      require<FlagError>(name != "config", value.where(), "a configuration names no other");
      const auto [known, is_new] = names.emplace(with_underscores(name), name);
      require<FlagError>(is_new, value.where(), "'", shown(known->second), "' and '", shown(name),
                         "' are one flag; leave one of them out");
      const bool is_no_flag = name == kChosen || name == kAbout;  // what was chosen is chosen again
      if (is_no_flag && value.kind() == JsonValue::Kind::kObject) continue;
      const OptionRow* const row = parser.row(known->first);
      if (row && row->separator != 0 && value.kind() == JsonValue::Kind::kArray)
        for (const JsonValue& item : value.items()) result.push_back(flag_of(name, item).written);
      else
        result.push_back(flag_of(name, value).written);
    }
    return result;
  });
}

// "X" of --config=X or --config X among the arguments.
std::optional<std::string> config_path(std::span<const char* const> arguments) {
  std::optional<std::string> path;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    constexpr std::string_view kName = "--config";
    if (argument.starts_with("--config=")) path = argument.substr(kName.size() + 1);
    if (argument == kName && i + 1 < arguments.size()) path = arguments[i + 1];
  }
  return path;
}

// "batch_size" of "--batch-size=8".
std::string name_in(std::string_view argument) {
  const std::string name = with_underscores(std::string(argument.substr(0, argument.find('='))));
  return name.starts_with("__") ? name.substr(2) : "";
}

// The configuration of a run with a directory also serves a run without one.
void leave_out_of_run_directory(const FlagParser& parser, const std::string& path, bool warns,
                                std::vector<std::string>& arguments) {
  std::vector<std::string> left_out;
  std::erase_if(arguments, [&](const std::string& argument) {
    const std::string name = name_in(argument);
    const OptionRow* const row = parser.row(name);
    const bool unused = row && row->is_about_run_dir();
    if (unused) left_out.push_back(name);
    return unused;
  });
  if (warns && !left_out.empty())
    log_warning("--config=", path, ": without --run_dir there is no use for ", join(left_out),
                left_out.size() == 1 ? ", which is left out" : ", which are left out");
}

// Whether the command line asks for an evaluation alone.
bool evaluates_only(std::span<const std::string> arguments) {
  return std::ranges::any_of(arguments, [](const std::string& argument) {
    return name_in(argument) == "evaluate_only" && !argument.ends_with("=false") &&
           !argument.ends_with("=0");
  });
}

// What a configuration says of training has no use for an evaluation alone.
void leave_out_training(const FlagParser& parser, std::vector<std::string>& arguments) {
  std::erase_if(arguments, [&](const std::string& argument) {
    const OptionRow* const row = parser.row(name_in(argument));
    return row && row->is_about_training();
  });
}

// A number as a JSON number, so that people can edit it.
JsonValue value_of(const std::string& text) {
  try {
    JsonValue value = JsonValue::parse(text);
    if (value.kind() <= JsonValue::Kind::kDouble && value.str() == text) return value;
  } catch (const Error&) {
  }
  return JsonValue(text);
}

// Whether the run in the directory is resumed, not replaced by another.
bool goes_on_in_directory(const RunFlags& flags) {
  if (flags.directory.empty() || flags.resume == "never") return false;
  FileSystem& files = local_file_system();
  return flags.resume == "auto" ||
         cat(files.resolve(flags.resume), "/").starts_with(files.resolve(flags.directory) + "/");
}

}  // namespace

void set_flag(JsonValue& config, const std::string& name, const JsonValue& value) {
  JsonValue changed = JsonValue::object();
  for (const auto& [other, kept] : config.members())
    if (other != kChosen) changed.set(other, kept);
  changed.set(name, value);
  if (const JsonValue* const chosen = config.find(kChosen)) changed.set(kChosen, *chosen);
  config = std::move(changed);
}

void take_from_run(TrainFlags& flags) {
  RunFlags& run = flags.run;
  naming_flag<FlagError>(cat("--run_dir=", run.directory), [&] {
    const auto config =
        goes_on_in_directory(run) ? run_config(local_file_system(), run.directory) : std::nullopt;
    if (!config) return;
    naming_flag<FlagError>(cat(run.directory, "/", kConfigFile), [&] {
      for (const auto& [name, value] : config->members()) {
        const Option<TrainFlags>* const option = find_option(*flags.table, name);
        const bool is_given = std::ranges::find(run.given, name) != run.given.end();
        if (!option || is_given) continue;
        if (option->scope != Scope::kRunDirectory && !option->kept) continue;
        option->read(flags, flag_of(name, value));
        set_flag(flags.config, name, value);
      }
    });
  });
}

namespace {

// The flags that arguments stand for: "--layers=12" for "--preset=gpt2-124m".
std::vector<std::string> implied_by(const FlagParser& parser,
                                    std::span<const std::string> arguments) {
  std::map<std::string, std::string> chosen;  // the last value of each such flag
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string name = name_in(arguments[i]);
    const OptionRow* const row = parser.row(name);
    if (!row || row->stands_for.empty()) continue;
    const std::size_t equals = arguments[i].find('=');
    if (equals != std::string::npos)
      chosen[name] = arguments[i].substr(equals + 1);
    else if (i + 1 < arguments.size())
      chosen[name] = arguments[i + 1];
  }
  std::vector<std::string> flags;
  for (const auto& [name, value] : chosen)
    for (const OwnOption::Choice& choice : parser.row(name)->stands_for)
      if (choice.name == value)
        for (const std::string& option : choice.options) flags.push_back("--" + option);
  return flags;
}

// The flags of a file and of the command line, each after those that they stand for: the last value
// of a flag wins.
struct AllArguments {
  std::vector<std::string> of_file, of_line;
};

AllArguments with_config(const FlagParser& parser, std::span<const char* const> arguments) {
  AllArguments all;
  all.of_line = {arguments.begin(), arguments.end()};
  if (const std::optional<std::string> path = config_path(arguments)) {
    require<FlagError>(!path->empty(), "--config needs a value");
    all.of_file = arguments_in(parser, *path);
    if (evaluates_only(all.of_line)) leave_out_training(parser, all.of_file);
    // Two flags may set one thing. The command line wins then, too.
    const auto names_batch = [](std::string_view argument) {
      return name_in(argument) == "batch_size" || name_in(argument) == "global_batch_size";
    };
    if (std::ranges::any_of(arguments, names_batch)) std::erase_if(all.of_file, names_batch);
    const auto names_run = [](std::string_view argument) {
      return name_in(argument) == "run_dir" || name_in(argument) == "train_dir";
    };
    if (std::ranges::none_of(arguments, names_run) && std::ranges::none_of(all.of_file, names_run))
      leave_out_of_run_directory(
          parser, *path,
          /*warns=*/
          std::ranges::none_of(
              arguments, [](std::string_view argument) { return name_in(argument) == "replay"; }),
          all.of_file);
  }
  for (std::vector<std::string>* const some : {&all.of_file, &all.of_line}) {
    const std::vector<std::string> implied = implied_by(parser, *some);
    some->insert(some->begin(), implied.begin(), implied.end());
  }
  return all;
}

}  // namespace

std::string parse_with_config(FlagParser& parser, std::span<const char* const> arguments) {
  const AllArguments all = with_config(parser, arguments);
  std::vector<const char*> texts;
  for (const std::vector<std::string>* const some : {&all.of_file, &all.of_line})
    for (const std::string& argument : *some) texts.push_back(argument.c_str());
  try {
    return parser.parse(texts, all.of_file.size());
  } catch (const FlagError& error) {
    const std::string flag = cat("--", error.fields().option);
    const auto is_it = [&](std::string_view argument) { return "--" + name_in(argument) == flag; };
    const bool is_of_file = parser.given(flag) ? parser.flag(flag).of_file
                                               : std::ranges::any_of(all.of_file, is_it) &&
                                                     std::ranges::none_of(all.of_line, is_it);
    if (!is_of_file) throw;
    throw FlagError(with_flag(cat("--config=", shown(*config_path(arguments))), error));
  }
}

void print_config(const JsonValue& config) { std::puts(config.str(2).c_str()); }

// The configuration of a run has all defaults filled in. So another version or machine with other
// defaults makes the same run.

namespace {

// The given flags, without those that name files of a single run.
JsonValue config_of(const FlagParser& parser) {
  JsonValue config = JsonValue::object();
  for (const WrittenFlag& flag : parser.line())
    if (const OptionRow* const row = parser.row(flag.name); row && row->scope != Scope::kThisCall)
      config.set(flag.name, flag.value == "true"    ? JsonValue(true)
                            : flag.value == "false" ? JsonValue(false)
                                                    : value_of(flag.value));
  return config;
}

JsonValue config_without(const JsonValue& config, std::string_view left_out) {
  JsonValue rest = JsonValue::object();
  for (const auto& [name, value] : config.members())
    if (name != left_out) rest.set(name, value);
  return rest;
}

// Whether a configuration has the value of an option that was not given.
bool is_noted(const OptionRow& row, const RunFlags& run) {
  const bool is_kept = row.scope == Scope::kRunDirectory && !run.directory.empty();
  const bool is_of_run = row.scope == Scope::kResults || row.scope == Scope::kExecution;
  return row.noted && !row.chosen && (is_kept || is_of_run);
}

// The program, and the choices that follow from devices and other flags. If they were flags, they
// would be wrong on other devices.
JsonValue choices_of(const TrainFlags& flags, const std::string& program) {
  const TrainerFacts kind = find_trainer(flags.kind).facts();
  JsonValue chosen = JsonValue::object().set(kProgramMember, program);
  for (const Option<TrainFlags>& option : *flags.table)
    if (option.chosen && option.is_taken_by(kind))
      if (JsonValue value = option.value(flags); value.kind() != JsonValue::Kind::kNull)
        chosen.set(option.name, std::move(value));
  return chosen;
}

}  // namespace

JsonValue TrainFlagSet::resolved_config(const TrainFlags& flags) const {
  JsonValue config = config_of(parser_);
  if (flags.trainer.shards == 0) config = config_without(config, "shards");  // a file had a number
  // The batch of all devices, so that other devices give the same bits. No process has been met
  // yet.
  const std::int64_t global =
      flags.trainer.batch_size * towers_of(flags.trainer, flags.group.processes);
  config = config_without(config, "batch_size");
  if (!config.find("global_batch_size")) config.set("global_batch_size", global);
  for (const Option<TrainFlags>& option : *flags.table) {
    if (!option.value || !is_noted(option, flags.run) || config.find(option.name)) continue;
    const JsonValue value = option.value(flags);
    if (!text_of(value).empty()) config.set(option.name, value);  // no command line gives ""
  }
  config.set(kChosen, choices_of(flags, defaults_.program));
  return config;
}

void add_to_config(TrainFlags& flags, const Optimizer& recipes) {
  const Optimizer optimizer = chosen_optimizer(recipes, flags.optimizer);
  JsonValue chosen = flags.config.at(kChosen);
  const LearningRate& rate = optimizer.rate();
  if (!flags.optimizer.learning_rate)
    chosen.set("learning_rate",
               rate.is_constant() ? JsonValue(rate.at({})) : JsonValue(rate.str()));
  chosen.set("optimizer", optimizer.name());
  for (const OptimizerOption& option : optimizer.options())
    if (!flags.config.find(option.name)) chosen.set(option.name, option.value);
  if (!flags.optimizer.weight_decay) chosen.set("weight_decay", optimizer.weight_decay());
  if (flags.optimizer.groups.empty() && !optimizer.groups().empty())
    chosen.set("group", text_of_groups(optimizer.groups()));
  flags.config.set(kChosen, std::move(chosen));
}

}  // namespace belfry
