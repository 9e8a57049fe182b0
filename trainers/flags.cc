#include "belfry/trainers/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <CLI/CLI.hpp>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/device.h"
#include "belfry/trainers/trainer_kinds.h"

namespace belfry {
namespace {

constexpr int kMostThreads = 1024;

// What the user typed; "" where nothing was. Numbers stay text, because CLI11 accepts -1 as
// unsigned and lets large ones wrap around.
struct RawFlags {
  std::string devices = "cpu:2", trainer, allreduce, data_dir, json;
  std::string repacking, batch_size, epochs, max_steps, threads, seed, learning_rate;
  bool log_device_placement = false;
};

std::string alternatives(const std::vector<std::string>& names) { return join(names, "|"); }

void define(CLI::App& app, RawFlags& raw, const FlagDefaults& defaults) {
  const auto add = [&](const char* name, auto& value, const char* unit, const std::string& text) {
    return app.add_option(name, value, text)->type_name(unit)->take_last();
  };
  const char* const kDevices = "Devices and gradients";
  add("--devices", raw.devices, "LIST",
      "cpu:N for N logical devices; or names: /cpu:1, cpu:0,cpu:2 [cpu:2]")
      ->group(kDevices);
  add("--trainer", raw.trainer, "NAME",
      alternatives(trainer_names()) + " [simple with one device, else replicated]")
      ->group(kDevices);
  add("--allreduce", raw.allreduce, "NAME",
      alternatives(strategy_names()) +
          "; parameter_server takes colocate, replicated all others [collective]")
      ->group(kDevices);
  add("--gradient_repacking", raw.repacking, "N",
      "pack all gradients into N parts before they are combined; 0: do not [0]")
      ->group(kDevices);
  const char* const kTraining = "Training";
  add("--batch_size", raw.batch_size, "N",
      cat("examples per device and step [", defaults.batch_size, "]"))
      ->group(kTraining);
  add("--epochs", raw.epochs, "N", cat("passes over the training data [", defaults.epochs, "]"))
      ->group(kTraining);
  add("--max_steps", raw.max_steps, "N", "stop after N steps at the latest; 0: no limit [0]")
      ->group(kTraining);
  add("--learning_rate", raw.learning_rate, "X",
      "constant, instead of the program's rate or schedule [the program's]")
      ->group(kTraining);
  add("--seed", raw.seed, "N", "of initial values, the order of the data and dropout [1]")
      ->group(kTraining);
  if (defaults.reads_files)
    add("--data_dir", raw.data_dir, "DIR",
        "folder with the data files [none: the program generates data, if it can]")
        ->group("Data");
  const char* const kExecution = "Execution and output";
  add("--threads", raw.threads, "N",
      cat("worker threads, the main thread included; 0: all usable cores (", usable_cores(),
          " here) [0]"))
      ->group(kExecution);
  app.add_flag("--log_device_placement", raw.log_device_placement,
               "print the device of every node [false]")
      ->group(kExecution);
  add("--json", raw.json, "FILE", "write the results there, as one JSON object [none]")
      ->group(kExecution);
  app.set_help_flag("-h,--help", "print this and exit")->group(kExecution);
}

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

// Throws FlagError unless all of `text` is a T.
template <class T>
T parse_number(const char* flag, const std::string& text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  require<FlagError>(error != std::errc::result_out_of_range, flag, "=", text, " is out of range");
  require<FlagError>(error == std::errc() && stop == end, flag, "=", text, " is not ",
                     std::is_floating_point_v<T> ? "a number"
                     : std::is_signed_v<T>       ? "a whole number"
                                                 : "a whole number >= 0");
  return value;
}

template <class T>
void read_integer(const char* flag, const std::string& text, T least, T most, T& value) {
  if (text.empty()) return;
  const auto given = parse_number<std::int64_t>(flag, text);
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
  if (!raw.seed.empty()) flags.seed = parse_number<std::uint64_t>("--seed", raw.seed);
  if (raw.learning_rate.empty()) return;
  flags.learning_rate = parse_number<double>("--learning_rate", raw.learning_rate);
  require<FlagError>(std::isfinite(*flags.learning_rate) && *flags.learning_rate >= 0,
                     "--learning_rate=", raw.learning_rate, " is not a finite number >= 0");
}

// Turns errors of look-ups by name into those of a flag.
template <class F>
decltype(auto) as_flag(const char* flag, const F& look_up) {
  try {
    return look_up();
  } catch (const InvalidArgument& error) {
    throw FlagError(cat(flag, ": ", error.what()));
  }
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

void require_cpu(std::string_view type, std::string_view item) {
  std::string upper(type);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  require<FlagError>(upper == "CPU", "--devices: '", item, "': there are no ", upper,
                     " devices in this build; use cpu:N");
}

DeviceSpec parse_named_device(std::string_view item) {
  require<FlagError>(!item.empty(), "--devices: an item of the list is empty");
  const DeviceSpec spec = as_flag("--devices", [&] { return DeviceSpec(item); });
  require<FlagError>(spec.type && spec.index, "--devices: '", item,
                     "' does not name one device; say e.g. /cpu:1");
  require_cpu(*spec.type, item);
  require<FlagError>(*spec.index < kMostDevices, "--devices: '", item, "': at most ", kMostDevices,
                     " devices");
  const DeviceSpec full = DeviceSpec::local("CPU", *spec.index);
  require<FlagError>(spec.matches(full), "--devices: '", item,
                     "' is not in this process: ", full.str(), " is");
  return full;
}

}  // namespace

std::vector<DeviceSpec> parse_devices(std::string_view text) {
  std::vector<DeviceSpec> devices;
  if (text.find(',') == text.npos && !text.starts_with('/')) {
    const std::size_t colon = text.find(':');
    require<FlagError>(colon != text.npos, "--devices: '", text,
                       "' is neither a count (cpu:4) nor a name (/cpu:1)");
    require_cpu(text.substr(0, colon), text);
    const auto count = parse_number<std::int64_t>("--devices", std::string(text.substr(colon + 1)));
    require<FlagError>(count >= 1 && count <= kMostDevices, "--devices: '", text,
                       "' is a count; it must be between 1 and ", kMostDevices,
                       " (one device is named with a slash: /", text, ")");
    for (int i = 0; i < count; ++i) devices.push_back(DeviceSpec::local("CPU", i));
    return devices;
  }
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const DeviceSpec device = parse_named_device(text.substr(begin, end - begin));
    require<FlagError>(std::ranges::find(devices, device) == devices.end(), "--devices: ", device,
                       " is named twice; each tower needs its own");
    devices.push_back(device);
    begin = end + 1;
  }
  return devices;
}

TrainFlags parse_flags(std::span<const char* const> arguments, const FlagDefaults& defaults) {
  RawFlags raw;
  CLI::App app("Trains on one or more devices. Flags may be spelled with - or _.",
               defaults.program);
  define(app, raw, defaults);
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
  flags.devices = parse_devices(raw.devices);
  flags.data_dir = raw.data_dir;
  flags.log_device_placement = raw.log_device_placement;
  flags.json = raw.json;
  choose_trainer(flags, raw);
  return flags;
}

}  // namespace belfry
