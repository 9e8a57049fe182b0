#include "belfry/trainers/flags.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <CLI/CLI.hpp>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/device.h"
#include "belfry/trainers/device_flag.h"
#include "belfry/trainers/trainer_kinds.h"

namespace belfry {
namespace {

constexpr int kMostThreads = 1024;

// What the user typed; "" where nothing was. Numbers stay text, because CLI11 accepts -1 as
// unsigned and lets large ones wrap around.
struct RawFlags {
  std::string devices = "cpu:2", trainer, allreduce, data_dir, json;
  std::string repacking, batch_size, epochs, max_steps, threads, seed, learning_rate;
  std::string explain, trace_file, save_checkpoint, restore_checkpoint;
  bool log_device_placement = false, dry_run = false;
};

std::string alternatives(const std::vector<std::string>& names) { return join(names, "|"); }

// "replicated (a copy of all variables per device) | simple (one tower)".
std::string trainers_text() {
  std::vector<std::string> texts;
  for (const std::string& name : trainer_names())
    texts.push_back(cat(name, " (", find_trainer(name).summary, ")"));
  return join(texts, " | ");
}

// Defines the flags, in the order and the groups of --help.
class Definer {
 public:
  Definer(CLI::App& app, RawFlags& raw) : app_(app), raw_(raw) {}

  void devices_and_gradients() {
    group_ = "Devices and gradients";
    add("--devices", raw_.devices, "LIST",
        "cpu:N for N logical devices; or names: /cpu:1, cpu:0,cpu:2 [cpu:2]");
    add("--trainer", raw_.trainer, "NAME",
        trainers_text() + " [simple with one device, else replicated]");
    add("--allreduce", raw_.allreduce, "NAME",
        alternatives(strategy_names()) +
            "; parameter_server takes colocate, replicated all others [collective]");
    add("--gradient_repacking", raw_.repacking, "N",
        "pack all gradients into N parts before they are combined; 0: do not [0]");
  }

  void training(const FlagDefaults& defaults) {
    group_ = "Training";
    add("--batch_size", raw_.batch_size, "N",
        cat("examples per device and step [", defaults.batch_size, "]"));
    add("--epochs", raw_.epochs, "N", cat("passes over the training data [", defaults.epochs, "]"));
    add("--max_steps", raw_.max_steps, "N", "stop after N steps at the latest; 0: no limit [0]");
    add("--learning_rate", raw_.learning_rate, "X",
        "constant, instead of the program's rate or schedule [the program's]");
    add("--seed", raw_.seed, "N", "of initial values, the order of the data and dropout [1]");
    group_ = "Data";
    if (defaults.reads_files)
      add("--data_dir", raw_.data_dir, "DIR",
          "folder with the data files [none: the program generates data, if it can]");
    group_ = "Checkpoints";
    add("--save_checkpoint", raw_.save_checkpoint, "PATH",
        "directory to save variables and progress in, after each epoch and at the end [none]");
    add("--restore_checkpoint", raw_.restore_checkpoint, "PATH",
        "go on from this checkpoint; --epochs and --max_steps count what it has done [none]");
  }

  void inspection() {
    group_ = "Inspection";
    add("--log_device_placement", raw_.log_device_placement,
        "print the device of every node, and the balance of variables [false]");
    add("--dry_run", raw_.dry_run,
        "print the device of every node and the memory planned per device, and exit; reads no "
        "data; --devices may name GPUs that this machine lacks [false]");
    add("--explain", raw_.explain, "NODE", "print why this node is on its device, and exit [none]");
    add("--trace_file", raw_.trace_file, "FILE",
        "record step 2 (or the only one) for Perfetto or chrome://tracing [none]");
  }

  void execution() {
    group_ = "Execution and output";
    add("--threads", raw_.threads, "N",
        cat("worker threads, the main thread included; 0: all usable cores (", usable_cores(),
            " here) [0]"));
    add("--json", raw_.json, "FILE", "write the results there, as one JSON object [none]");
    app_.set_help_flag("-h,--help", "print this and exit")->group(group_);
  }

 private:
  void add(const char* name, std::string& value, const char* unit, const std::string& text) {
    app_.add_option(name, value, text)->type_name(unit)->take_last()->group(group_);
  }
  void add(const char* name, bool& value, const std::string& text) {
    app_.add_flag(name, value, text)->group(group_);
  }

  CLI::App& app_;
  RawFlags& raw_;
  const char* group_ = "";
};

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

void parse(CLI::App& app, std::vector<std::string> arguments) {
  std::ranges::reverse(arguments);  // as CLI11 takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const CLI::ParseError& error) {
    throw FlagError(error.what());
  }
}

template <class T>
void read_integer(const char* flag, const std::string& text, T least, T most, T& value) {
  if (text.empty()) return;
  const auto given = parse_number<std::int64_t>(cat(flag, "=", text), text);
  require<FlagError>(given >= least && given <= most, flag, "=", text, " is not between ", least,
                     " and ", most);
  value = static_cast<T>(given);
}

void read_numbers(TrainFlags& flags, const RawFlags& raw) {
  constexpr int kMost = std::numeric_limits<int>::max();
  read_integer("--gradient_repacking", raw.repacking, 0, kMost, flags.gradient_repacking);
  read_integer("--batch_size", raw.batch_size, 1, kMost, flags.batch_size);
  read_integer("--epochs", raw.epochs, 1, kMost, flags.epochs);
  read_integer<std::int64_t>("--max_steps", raw.max_steps, 0,
                             std::numeric_limits<std::int64_t>::max(), flags.max_steps);
  read_integer("--threads", raw.threads, 0, kMostThreads, flags.threads);
  if (!raw.seed.empty()) flags.seed = parse_number<std::uint64_t>("--seed=" + raw.seed, raw.seed);
  if (raw.learning_rate.empty()) return;
  flags.learning_rate =
      parse_number<double>("--learning_rate=" + raw.learning_rate, raw.learning_rate);
  require<FlagError>(std::isfinite(*flags.learning_rate) && *flags.learning_rate >= 0,
                     "--learning_rate=", raw.learning_rate, " is not a finite number >= 0");
}

// Fills in trainer and allreduce, and checks that they go together.
void choose_trainer(TrainFlags& flags, const RawFlags& raw) {
  const auto towers = std::ssize(flags.devices);
  flags.trainer = raw.trainer.empty() ? (towers == 1 ? "simple" : "replicated") : raw.trainer;
  const TrainerKind& kind =
      as_flag("--trainer", [&]() -> const TrainerKind& { return find_trainer(flags.trainer); });
  const std::string chosen =
      cat("--trainer=", kind.name,
          raw.trainer.empty() ? cat(" (chosen for --devices=", raw.devices, ")") : "");
  require<FlagError>(!kind.one_device || towers == 1, chosen,
                     " takes one device, but --devices=", raw.devices, " has ", towers);
  flags.allreduce = raw.allreduce.empty() ? kind.default_strategy : raw.allreduce;
  if (!flags.allreduce.empty()) {
    as_flag("--allreduce", [&] { return make_strategy(flags.allreduce) != nullptr; });
    require<FlagError>(kind.accepts && kind.accepts(flags.allreduce), chosen,
                       kind.accepts ? " does not take --allreduce="
                                    : " takes no --allreduce; it has "
                                      "no use for --allreduce=",
                       flags.allreduce);
  }
  require<FlagError>(flags.allreduce != "hierarchical" || towers % 2 == 0,
                     "--allreduce=hierarchical needs an even number of devices, but --devices=",
                     raw.devices, " has ", towers);
  require<FlagError>(flags.gradient_repacking == 0 || kind.packs,
                     "--gradient_repacking=", flags.gradient_repacking,
                     " needs --trainer=replicated, not ", chosen);
}

// What inspects trains nothing, so it writes and restores nothing.
void refuse_unused_files(const TrainFlags& flags) {
  const std::string_view why = flags.dry_run            ? "--dry_run"
                               : !flags.explain.empty() ? "--explain"
                                                        : "";
  if (why.empty()) return;
  const std::pair<const char*, const std::string&> files[] = {
      {"--trace_file", flags.trace_file},
      {"--save_checkpoint", flags.save_checkpoint},
      {"--restore_checkpoint", flags.restore_checkpoint}};
  for (const auto& [flag, value] : files)
    require<FlagError>(value.empty(), flag, "=", value, " has no use beside ", why,
                       ", which trains nothing; leave one of them out");
}

void refuse_shared_files(const TrainFlags& flags) {
  const std::pair<const char*, const std::string&> files[] = {
      {"--json", flags.json},
      {"--trace_file", flags.trace_file},
      {"--save_checkpoint", flags.save_checkpoint}};
  for (const auto& [flag, value] : files)
    for (const auto& [other, same] : files)
      require<FlagError>(value.empty() || flag == other || value != same, flag, "=", value, " and ",
                         other, "=", same, " would overwrite each other");
}

}  // namespace

TrainFlags parse_flags(std::span<const char* const> arguments, const FlagDefaults& defaults) {
  RawFlags raw;
  CLI::App app("Trains on one or more devices. Flags may be spelled with - or _.",
               defaults.program);
  Definer define(app, raw);
  define.devices_and_gradients();
  define.training(defaults);
  define.inspection();
  define.execution();
  TrainFlags flags;
  try {
    parse(app, normalized(arguments, app));
  } catch (const CLI::CallForHelp&) {
    flags.help = app.help();
    return flags;
  }
  for (std::string* name : {&raw.trainer, &raw.allreduce}) std::ranges::replace(*name, '-', '_');
  flags.batch_size = defaults.batch_size;
  flags.epochs = defaults.epochs;
  read_numbers(flags, raw);
  flags.devices = parse_devices(raw.devices, raw.dry_run);
  flags.data_dir = raw.data_dir;
  flags.log_device_placement = raw.log_device_placement;
  flags.dry_run = raw.dry_run;
  flags.explain = raw.explain;
  flags.trace_file = raw.trace_file;
  flags.save_checkpoint = raw.save_checkpoint;
  flags.restore_checkpoint = raw.restore_checkpoint;
  flags.json = raw.json;
  refuse_unused_files(flags);
  refuse_shared_files(flags);
  choose_trainer(flags, raw);
  return flags;
}

}  // namespace belfry
