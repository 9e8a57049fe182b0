#include "belfry/trainers/program/run_flags.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/flags/weight_flags.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/program/program_processes.h"

namespace belfry {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// Flags of one call of a program. Another call with the same configuration may have others.
constexpr std::string_view kOfOneCall[] = {"config",        "print_config",
                                           "run_dir",       "resume",
                                           "overwrite",     "json",
                                           "trace_file",    "trace_steps",
                                           "memory_report", "dry_run",
                                           "processes",     "explain",
                                           "load",          "load_weights",
                                           "summary",       "load_checkpoint",
                                           "algorithms",    "check_equivalence",
                                           "plot",          "processes_per_host",
                                           "insecure",      "meeting_timeout_s"};

// Flags about what a run directory keeps.
constexpr std::string_view kOfRunDirectory[] = {
    "save_every_steps", "save_every_epochs", "save_every_minutes", "keep",         "best_metric",
    "on_save_error",    "hash_every",        "histograms_every",   "memory_every", "trace_steps"};

BestMetric parse_best(const WrittenFlag& flag) {
  const std::size_t colon = flag.value.rfind(':');
  const std::string_view text = flag.value;
  const std::string_view way = colon == text.npos ? "" : text.substr(colon + 1);
  require<FlagError>(colon > 0 && (way == "min" || way == "max"), flag.written,
                     " is no metric with the way to compare it; write --best_metric=NAME:min or "
                     "NAME:max, e.g. validation_loss:min");
  return {.name = std::string(text.substr(0, colon)), .largest = way == "max"};
}

// A member of a configuration as an argument.
std::string argument_of(const std::string& name, const JsonValue& value) {
  const JsonValue::Kind kind = value.kind();
  require<FlagError>(kind != JsonValue::Kind::kArray && kind != JsonValue::Kind::kObject &&
                         kind != JsonValue::Kind::kNull,
                     value.where(), "the value of '", shown(name),
                     "' is no text, number, true or false");
  const std::string text = kind == JsonValue::Kind::kString ? value.text() : value.str();
  require<FlagError>(name.find('\0') == name.npos && text.find('\0') == text.npos, value.where(),
                     "'", shown(name), "' or its value has a zero byte, which no flag can have");
  return cat("--", name, "=", text);
}

std::string with_underscores(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

std::vector<std::string> arguments_in(const std::string& path) {
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
      if (name == kChosen && value.kind() == JsonValue::Kind::kObject) continue;  // chosen again
      result.push_back(argument_of(name, value));
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
void leave_out_of_run_directory(const std::string& path, std::vector<std::string>& arguments) {
  std::vector<std::string> left_out;
  std::erase_if(arguments, [&](const std::string& argument) {
    const std::string name = name_in(argument);
    const bool unused = std::ranges::find(kOfRunDirectory, name) != std::end(kOfRunDirectory);
    if (unused) left_out.push_back(name);
    return unused;
  });
  if (!left_out.empty())
    log_warning("--config=", path, ": without --run_dir there is no use for ", join(left_out),
                left_out.size() == 1 ? ", which is left out" : ", which are left out");
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

}  // namespace

StepRange parse_steps(const std::string& written, std::string_view text) {
  const std::size_t dash = std::min(text.find('-'), text.size());
  const std::string none =
      cat(written, " names no steps; they count from 1, the first before the last: 100-102");
  const auto number = [&](std::string_view part) {
    require<FlagError>(!part.empty(), none);
    return parse_number<std::int64_t>(cat(written, ": '", shown(part), "'"), part);
  };
  StepRange steps;
  steps.first = number(text.substr(0, dash));
  steps.last = dash == text.size() ? steps.first : number(text.substr(dash + 1));
  require<FlagError>(steps.first >= 1 && steps.first <= steps.last, none);
  return steps;
}

double parse_duration(const std::string& written, std::string_view text) {
  constexpr double kSeconds[] = {1, 60, 3600, 86400};
  double seconds = 0;
  std::vector<std::string_view> parts = split(text, ':');
  std::ranges::reverse(parts);
  require<FlagError>(parts.size() <= std::size(kSeconds), written,
                     " has more than days, hours, minutes and seconds");
  for (std::size_t i = 0; i < parts.size(); ++i)
    seconds += kSeconds[i] * static_cast<double>(parse_number<std::uint32_t>(
                                 cat(written, ": '", shown(parts[i]), "'"), parts[i]));
  require<FlagError>(seconds > 0, written, " is no time to train in");
  return seconds;
}

namespace {

void add_saving(FlagParser& parser, SaveSchedule& schedule) {
  parser.add("--save_every_steps", schedule.every_steps, 0, kMost, "N",
             "save into --run_dir after every N steps; 0: not by steps [0]");
  parser.add("--save_every_epochs", schedule.every_epochs, 0, kMost, "N",
             "the same after every N epochs [1]");
  parser.add_number(
      "--save_every_minutes", schedule.every_minutes, "a number >= 0",
      [](double x) { return x >= 0; }, "X",
      "the same when X minutes have passed since the last one; 0: not by time [0]");
  parser.add("--keep", schedule.keep, 1, std::numeric_limits<int>::max(), "N",
             "keep the N newest checkpoints of --run_dir, and the best [3]");
  parser.add_parsed("--best_metric", schedule.best, parse_best, "NAME:min|max",
                    "which checkpoint is the best, e.g. validation_accuracy:max [none is]");
  parser.add_parsed(
      "--on_save_error", schedule.on_error, find_on_save_error, "stop|retry|continue",
      "when a checkpoint cannot be written: end with the error, save again a minute later, or when "
      "that is due; older ones are kept [retry]");
}

void add_records(FlagParser& parser, RunFlags& flags) {
  parser.add("--histograms_every", flags.histograms_every, 0, kMost, "N",
             "give TensorBoard histograms of the variables after every N steps; 0: never [0]");
  parser.add("--hash_every", flags.hash_every, 0, kMost, "N",
             "note a hash of each variable and each combined gradient in --run_dir after every N "
             "steps, for belfry bisect; no gradient is fused with its update then; 0: never [0]");
  parser.add("--check_replicas_every", flags.check_replicas_every, 0, kMost, "N",
             "end the run if copies of a variable differ after every N steps, not only before each "
             "save; 0: only then [0]");
  parser.add("--memory_every", flags.memory_every, 0, kMost, "N",
             "note the memory of the process and of the devices in --run_dir after every N steps, "
             "for TensorBoard, too; 0: never [100]");
  parser.add_parsed(
      "--trace_steps", flags.traced,
      [](const WrittenFlag& flag) { return parse_steps(flag.written, flag.value); }, "FIRST-LAST",
      "record these steps for Perfetto or chrome://tracing, a file each in --run_dir [none]");
}

}  // namespace

void add_run_flags(FlagParser& parser, RunFlags& flags) {
  parser.group("Runs");
  parser.add(
      "--run_dir", flags.directory, "DIR",
      "folder of this run: checkpoints, logs, TensorBoard files, results; started again, the "
      "program goes on where the run was [none]");
  parser.add("--resume", flags.resume, "WAY",
             "auto: go on from the newest checkpoint of --run_dir, if there is one; never: start "
             "anew; PATH: go on from this checkpoint or run [auto]");
  parser.add("--load", flags.load, "PATH",
             "before training, take the weights that this checkpoint or run has, too, by name; the "
             "rest starts as usual [none]");
  add_weight_flags(parser, "load_", flags.load_weights, flags.load_checkpoint);
  add_saving(parser, flags.schedule);
  parser.add_parsed(
      "--max_time", flags.max_seconds,
      [](const WrittenFlag& flag) { return parse_duration(flag.written, flag.value); }, "TIME",
      "DD:HH:MM:SS, or fewer parts: save and end after this time, as by SIGTERM; a run that hangs "
      "ends without saving, when nothing has moved for --stall_warn_seconds [none]");
  add_records(parser, flags);
  add_config_flags(parser, flags);
}

void add_config_flags(FlagParser& parser, RunFlags& flags) {
  parser.add(
      "--config", flags.config_file, "FILE",
      "take flags from this JSON object, as --print_config prints and --run_dir keeps it; those of "
      "the command line win [none]");
  parser.add("--print_config", flags.print_config,
             "print the flags of this run as JSON, and exit [false]");
}

void check_run_flags(const FlagParser& parser, RunFlags& flags, bool overwrite) {
  const bool has_directory = !flags.directory.empty();
  for (const std::string_view name : kOfRunDirectory) {
    const std::string flag = cat("--", name);
    if (!parser.given(flag)) continue;
    require<FlagError>(has_directory, parser.flag(flag).written,
                       " is about what a run directory keeps; name one by --run_dir=DIR");
    flags.given.emplace_back(name);
  }
  require<FlagError>(!(parser.given("--trace_steps") && parser.given("--trace_file")),
                     parser.flag("--trace_steps").written, " and ",
                     parser.flag("--trace_file").written,
                     " record steps into different files; leave one of them out");
  const bool resumes = flags.resume != "never" && flags.resume != "auto";
  require<FlagError>(flags.load.empty() || !resumes, parser.flag("--load").written,
                     " starts a run from weights, so it cannot also go on from a checkpoint; leave "
                     "one of them out");
  for (const char* const flag : {"--load_weights", "--load_checkpoint"})
    require<FlagError>(!flags.load.empty() || !parser.given(flag), parser.flag(flag).written,
                       " is about what --load takes; name that, too");
  require<FlagError>(!overwrite || has_directory,
                     "--overwrite is for what --run_dir replaces; name that, too");
}

namespace {

// Whether the run in the directory goes on, and not another that takes its place.
bool goes_on_in_directory(const RunFlags& flags) {
  if (flags.directory.empty() || flags.resume == "never") return false;
  FileSystem& files = local_file_system();
  return flags.resume == "auto" ||
         cat(files.resolve(flags.resume), "/").starts_with(files.resolve(flags.directory) + "/");
}

// Adds a flag to a configuration. `chosen` comes last, as people read it last.
void set_flag(JsonValue& config, const std::string& name, const JsonValue& value) {
  JsonValue changed = JsonValue::object();
  for (const auto& [other, kept] : config.members())
    if (other != kChosen) changed.set(other, kept);
  changed.set(name, value);
  if (const JsonValue* const chosen = config.find(kChosen)) changed.set(kChosen, *chosen);
  config = std::move(changed);
}

}  // namespace

void take_from_run(TrainFlags& flags) {
  RunFlags& run = flags.run;
  const auto is_kept = [&](std::string_view name) {
    return name != "trace_steps" &&
           std::ranges::find(kOfRunDirectory, name) != std::end(kOfRunDirectory) &&
           std::ranges::find(run.given, name) == run.given.end();
  };
  naming_flag<FlagError>(cat("--run_dir=", run.directory), [&] {
    const auto config =
        goes_on_in_directory(run) ? run_config(local_file_system(), run.directory) : std::nullopt;
    if (!config) return;
    std::vector<std::string> arguments;
    for (const auto& [name, value] : config->members()) {
      if (!is_kept(name)) continue;
      arguments.push_back(argument_of(name, value));
      set_flag(flags.config, name, value);
    }
    FlagParser parser("", "");
    add_saving(parser, run.schedule);
    add_records(parser, run);
    std::vector<const char*> texts;
    for (const std::string& argument : arguments) texts.push_back(argument.c_str());
    naming_flag<FlagError>(cat(run.directory, "/", kConfigFile), [&] { parser.parse(texts); });
  });
}

std::vector<std::string> with_config(std::span<const char* const> arguments) {
  const std::optional<std::string> path = config_path(arguments);
  if (!path) return {arguments.begin(), arguments.end()};
  require<FlagError>(!path->empty(), "--config needs a value");
  std::vector<std::string> all = arguments_in(*path);
  // Two flags may set one thing. The command line wins then, too.
  const auto names_batch = [](std::string_view argument) {
    return name_in(argument) == "batch_size" || name_in(argument) == "global_batch_size";
  };
  if (std::ranges::any_of(arguments, names_batch)) std::erase_if(all, names_batch);
  const auto names_run = [](std::string_view argument) {
    return name_in(argument) == "run_dir" || name_in(argument) == "train_dir";
  };
  if (std::ranges::none_of(arguments, names_run) && std::ranges::none_of(all, names_run))
    leave_out_of_run_directory(*path, all);
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

std::string parse_with_config(FlagParser& parser, std::span<const char* const> arguments) {
  const std::vector<std::string> all = with_config(arguments);
  std::vector<const char*> texts;
  for (const std::string& argument : all) texts.push_back(argument.c_str());
  const std::span of_file = std::span(all).first(all.size() - arguments.size());
  try {
    return parser.parse(texts, of_file.size());
  } catch (const FlagError& error) {
    const std::string flag = cat("--", error.fields().option);
    const auto is_it = [&](std::string_view argument) { return "--" + name_in(argument) == flag; };
    const bool is_of_file = parser.given(flag) ? parser.flag(flag).of_file
                                               : std::ranges::any_of(of_file, is_it) &&
                                                     std::ranges::none_of(arguments, is_it);
    if (!is_of_file) throw;
    throw FlagError(with_flag(cat("--config=", shown(*config_path(arguments))), error));
  }
}

void print_config(const JsonValue& config) { std::puts(config.str(2).c_str()); }

JsonValue config_of(const FlagParser& parser) {
  JsonValue config = JsonValue::object();
  for (const WrittenFlag& flag : parser.line())
    if (!flag.name.empty() && std::ranges::find(kOfOneCall, flag.name) == std::end(kOfOneCall))
      config.set(flag.name, flag.value == "true"    ? JsonValue(true)
                            : flag.value == "false" ? JsonValue(false)
                                                    : value_of(flag.value));
  return config;
}

// The configuration of a run has all defaults filled in. So another version or machine with other
// defaults makes the same run.

namespace {

std::string full_names(std::span<const DeviceSpec> devices) {
  std::vector<std::string> names;
  for (const DeviceSpec& device : devices) names.push_back(device.str());
  return join(names, ",");
}

// Adds flags that were not given, if the program has them.
class ConfigDefaults {
 public:
  ConfigDefaults(JsonValue& config, const FlagParser& parser) : config_(config), parser_(parser) {}
  void add(const std::string& name, JsonValue value) {
    if (parser_.has("--" + name) && !config_.find(name)) config_.set(name, std::move(value));
  }

 private:
  JsonValue& config_;
  const FlagParser& parser_;
};

void add_run(ConfigDefaults& defaults, const RunFlags& run) {
  const SaveSchedule& schedule = run.schedule;
  defaults.add("save_every_steps", schedule.every_steps);
  defaults.add("save_every_epochs", schedule.every_epochs);
  defaults.add("save_every_minutes", schedule.every_minutes);
  defaults.add("keep", schedule.keep);
  defaults.add("on_save_error", name_of(schedule.on_error));
  defaults.add("hash_every", run.hash_every);
  defaults.add("histograms_every", run.histograms_every);
  defaults.add("memory_every", run.memory_every);
}

JsonValue config_without(const JsonValue& config, std::string_view left_out) {
  JsonValue rest = JsonValue::object();
  for (const auto& [name, value] : config.members())
    if (name != left_out) rest.set(name, value);
  return rest;
}

// The choices that follow from devices and other flags. If they were flags, they would be wrong on
// other devices.
JsonValue chosen_by(const TrainFlags& flags) {
  const TrainerOptions& trainer = flags.trainer;
  const AggregationOptions& aggregation = trainer.aggregation;
  const TrainerKind& kind = find_trainer(flags.kind);
  JsonValue chosen = JsonValue::object();
  chosen.set("trainer", flags.kind).set("fuse", trainer.session.fuse);
  if (!aggregation.allreduce.empty()) chosen.set("allreduce", aggregation.allreduce);
  if (kind.spreads_variables())
    chosen.set("parameter_device", trainer.parameters_on_cpu ? "cpu" : "spread");
  if (kind.packs_gradients)
    chosen.set("gradient_repacking", aggregation.gradient_repacking)
        .set("small_tensors_kb", aggregation.small_tensors_kb);
  if (kind.makes_buckets && aggregation.allreduce != "auto")
    chosen.set("bucket_mb", aggregation.bucket_mb);
  if (kind.replicates_variables())
    chosen.set("partition_updates", aggregation.partition_updates)
        .set("share_replicas", trainer.session.share_replicas);
  if (kind.takes_async()) chosen.set("async", flags.async());
  return chosen;
}

}  // namespace

JsonValue TrainFlagSet::resolved_config(const TrainFlags& flags) const {
  const TrainerOptions& trainer = flags.trainer;
  JsonValue config = config_of(parser_);
  if (trainer.shards == 0) config = config_without(config, "shards");  // a file had a number
  ConfigDefaults defaults(config, parser_);
  defaults.add("devices", full_names(trainer.devices));
  if (!defaults_.benchmark) {  // benchmarks have other names for them
    defaults.add("epochs", trainer.epochs);
    defaults.add("max_steps", trainer.max_steps);
    defaults.add("on_nonfinite", trainer.on_nonfinite == OnNonfinite::kStop ? "stop" : "continue");
  }
  if (!config.find("batch_size"))
    defaults.add("global_batch_size", trainer.batch_size * std::ssize(devices_of_all(flags)));
  defaults.add("gradient_accumulation_steps", trainer.batches.gradient_accumulation_steps);
  defaults.add("uneven", name_of(trainer.batches.uneven));
  defaults.add("seed", trainer.seed);
  defaults.add("precision", name_of(trainer.precision));
  defaults.add("warmup_steps", flags.optimizer.warmup_steps);
  defaults.add("clip_norm", trainer.clip_norm);
  defaults.add("threads", trainer.session.threads);
  defaults.add("data_workers", trainer.data_workers);
  defaults.add("check_replicas_every", flags.run.check_replicas_every);
  if (!flags.run.directory.empty()) add_run(defaults, flags.run);
  for (const OwnFlag& flag : defaults_.own)
    if (flag.value() != OwnFlag::Value(""))  // no command line gives ""
      std::visit([&](const auto& value) { defaults.add(flag.name, JsonValue(value)); },
                 flag.value());
  config.set(kChosen, chosen_by(flags));
  return config;
}

void add_to_config(TrainFlags& flags, const Optimizer& optimizer) {
  JsonValue chosen = flags.config.at(kChosen);
  const LearningRate& rate = optimizer.rate();
  if (!flags.optimizer.learning_rate && rate.is_constant())
    flags.config.set("learning_rate", rate.at({}));
  else if (!flags.optimizer.learning_rate)
    chosen.set("learning_rate", rate.str());
  chosen.set("optimizer", optimizer.name());
  if (!flags.optimizer.weight_decay) chosen.set("weight_decay", optimizer.weight_decay());
  // Comes last, as people read it last.
  JsonValue config = JsonValue::object();
  for (const auto& [name, value] : flags.config.members())
    if (name != kChosen) config.set(name, value);
  flags.config = config.set(kChosen, std::move(chosen));
}

}  // namespace belfry
