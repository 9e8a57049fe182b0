#include <algorithm>
#include <cmath>
#include <limits>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/device.h"
#include "belfry/trainers/device_flag.h"
#include "belfry/trainers/flag_parser.h"
#include "belfry/trainers/flags_impl.h"
#include "belfry/trainers/trainer_kinds.h"

namespace belfry {
namespace {

constexpr int kMostThreads = 1024;

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
  Definer(FlagParser& parser, RawFlags& raw) : parser_(parser), raw_(raw) {}

  void devices_and_gradients() {
    parser_.group("Devices and gradients");
    parser_.add("--devices", raw_.devices, "LIST",
                "cpu:N for N logical devices; or names: /cpu:1, cpu:0,cpu:2 [cpu:2]");
    parser_.add("--trainer", raw_.trainer, "NAME",
                trainers_text() + " [simple with one device, else replicated]");
    parser_.add("--allreduce", raw_.allreduce, "NAME",
                alternatives(strategy_names()) +
                    "; parameter_server takes colocate, replicated all others [collective]");
    parser_.add("--gradient_repacking", raw_.repacking, "N",
                "pack all gradients into N parts before they are combined; 0: do not [0]");
    parser_.add(
        "--async", raw_.async, "ordered|free",
        "of --trainer=async. ordered: all gradients at the same values, then an update per "
        "tower; free: each tower on a thread of its own, never the same bits twice [ordered]");
  }

  void training(const FlagDefaults& defaults) {
    parser_.group("Training");
    parser_.add("--batch_size", raw_.batch_size, "N",
                cat("examples per device and step [", defaults.batch_size, "]"));
    parser_.add("--epochs", raw_.epochs, "N",
                cat("passes over the training data [", defaults.epochs, "]"));
    parser_.add("--max_steps", raw_.max_steps, "N",
                "stop after N steps at the latest; 0: no limit [0]");
    parser_.add("--learning_rate", raw_.learning_rate, "X",
                "constant, instead of the program's rate or schedule [the program's]");
    parser_.add("--seed", raw_.seed, "N",
                "of initial values, the order of the data and dropout [1]");
    parser_.group("Data");
    if (defaults.reads_files)
      parser_.add("--data_dir", raw_.data_dir, "DIR",
                  "folder with the data files [none: the program generates data, if it can]");
    parser_.group("Checkpoints");
    parser_.add(
        "--save_checkpoint", raw_.save_checkpoint, "PATH",
        "directory to save variables and progress in, after each epoch and at the end [none]");
    parser_.add(
        "--restore_checkpoint", raw_.restore_checkpoint, "PATH",
        "go on from this checkpoint; --epochs and --max_steps count what it has done [none]");
  }

  void inspection() {
    parser_.group("Inspection");
    parser_.add("--log_device_placement", raw_.log_device_placement,
                "print the device of every node, and the balance of variables [false]");
    parser_.add(
        "--dry_run", raw_.dry_run,
        "print the device of every node and the memory planned per device, and exit; reads no "
        "data; --devices may name GPUs that this machine lacks [false]");
    parser_.add("--explain", raw_.explain, "NODE",
                "print why this node is on its device, and exit [none]");
    parser_.add("--trace_file", raw_.trace_file, "FILE",
                "record step 2 (or the only one) for Perfetto or chrome://tracing [none]");
  }

  void execution() {
    parser_.group("Execution and output");
    parser_.add("--threads", raw_.threads, "N",
                cat("worker threads, the main thread included; 0: all usable cores (",
                    usable_cores(), " here) [0]"));
    parser_.add("--json", raw_.json, "FILE", "write the results there, as one JSON object [none]");
  }

 private:
  FlagParser& parser_;
  RawFlags& raw_;
};

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

}  // namespace

TrainFlags parse_flags(std::span<const char* const> arguments, const FlagDefaults& defaults) {
  RawFlags raw;
  FlagParser parser("Trains on one or more devices. Flags may be spelled with - or _.",
                    defaults.program);
  Definer define(parser, raw);
  define.devices_and_gradients();
  define.training(defaults);
  define.inspection();
  define.execution();
  TrainFlags flags;
  flags.help = parser.parse(arguments);
  if (!flags.help.empty()) return flags;
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
  check_flags(flags, raw);
  return flags;
}

}  // namespace belfry
