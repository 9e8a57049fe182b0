#include <cmath>
#include <limits>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/small_tensors.h"
#include "belfry/framework/device/device.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/program/device_flag.h"
#include "belfry/trainers/program/flag_parser.h"
#include "belfry/trainers/program/flags_impl.h"
#include "belfry/trainers/program/tf_spellings.h"

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
    add_device_flags(parser_, raw_.devices);
    parser_.add("--trainer", raw_.trainer, "NAME",
                trainers_text() + " [simple with one device, else replicated]");
    parser_.add("--allreduce", raw_.allreduce, "SPEC",
                cat(alternatives(strategy_names()),
                    "|auto; parameter_server takes colocate, replicated all others; auto: the one "
                    "that is predicted to be fastest for this model; NAME#N in N chunks per "
                    "tensor, at most ",
                    kMostChunks,
                    " (ring, shuffle, collective); NAME:SIZE:NAME by size: tensors of up to SIZE "
                    "bytes (K, M, G, T: powers of 1024) by the first [collective; of "
                    "parameter_server: colocate]"));
    parser_.add("--parameter_device", raw_.parameter_device, "spread|cpu",
                "of --trainer=parameter_server and async: variables are spread over the devices, "
                "or all on cpu:0 [spread]");
    parser_.add("--gradient_repacking", raw_.repacking, "N",
                "pack all gradients into N parts before they are combined; 0: do not [0]");
    parser_.add("--small_tensors_kb", raw_.small_tensors_kb, "N",
                cat("pack up to ", kMostInSmallPack,
                    " f32 gradients in a row of at most N KiB each into one; 0: do not [0]"));
    parser_.add("--bucket_mb", raw_.bucket_mb, "X",
                cat("combine gradients in buckets of at most X MiB, the last ones first, while "
                    "others are being computed; 0: each by itself [",
                    kDefaultBucketMb,
                    "; 0 with --gradient_repacking; what is fastest with --allreduce=auto]"));
    parser_.add(
        "--fuse_updates", raw_.fuse_updates, "0|1",
        "combine gradients and update variables in one pass over memory, on GPUs also several "
        "variables in one launch; the same bits [1]");
    parser_.add("--share_replicas", raw_.share_replicas, "0|1",
                "one storage for equal replicas in one memory space; the same bits [1]");
    parser_.add("--nccl_timeout_s", raw_.nccl_timeout_s, "X",
                "end with an error if a collective of --allreduce=nccl does not finish within X "
                "seconds [600]");
    parser_.add(
        "--async", raw_.async, "ordered|free",
        "of --trainer=async. ordered: all gradients at the same values, then an update per "
        "tower; free: each tower on a thread of its own, never the same bits twice [ordered]");
  }

  void training(const FlagDefaults& defaults) {
    parser_.group("Training");
    parser_.add("--batch_size", raw_.batch_size, "N",
                cat("examples per device and step [",
                    defaults.benchmark ? "the model's" : cat(defaults.batch_size), "]"));
    if (!defaults.benchmark)
      parser_.add("--uneven", raw_.uneven, "WAY",
                  "drop|pad|weight|error: what to do with examples that do not fill a last batch "
                  "[drop]");
    parser_.add("--tower_weights", raw_.tower_weights, "LIST",
                "share of each device in a batch of --batch_size examples per device, a number for "
                "each, e.g. 2,1; gradients count by examples [equal]");
    if (!defaults.benchmark) {
      parser_.add("--epochs", raw_.epochs, "N",
                  cat("passes over the training data [", defaults.epochs, "]"));
      parser_.add("--max_steps", raw_.max_steps, "N",
                  "stop after N steps at the latest; 0: no limit [0]");
    }
    parser_.add("--learning_rate", raw_.learning_rate, "X",
                "a constant rate >= 0, instead of the program's rate or schedule [the program's]");
    parser_.add("--precision", raw_.precision, "TYPE",
                cat(alternatives(precision_names()),
                    ": what the model computes in; variables are f32. tf32: GPUs alone; bf16, f16: "
                    "slow on CPUs; f16 scales the loss, and skips updates that are not finite "
                    "[f32]"));
    parser_.add("--seed", raw_.seed, "N",
                "of initial values, the order of the data and dropout, >= 0 [1]");
  }

  void files(const FlagDefaults& defaults) {
    parser_.group("Data");
    if (defaults.reads_files)
      parser_.add("--data_dir", raw_.data_dir, "DIR",
                  "folder with the data files [none: the program generates data, if it can]");
    parser_.group("Checkpoints");
    parser_.add(
        "--save_checkpoint", raw_.save_checkpoint, "PATH",
        "directory to save variables and progress in, after each epoch and at the end [none]");
    parser_.add("--overwrite", raw_.overwrite,
                "let --save_checkpoint replace a checkpoint of another model, too [false]");
    parser_.add(
        "--restore_checkpoint", raw_.restore_checkpoint, "PATH",
        "go on from this checkpoint; --epochs and --max_steps count what it has done [none]");
  }

  void inspection(const FlagDefaults& defaults) {
    parser_.group("Inspection");
    if (!defaults.benchmark)
      parser_.add("--log_device_placement", raw_.log_device_placement,
                  "print the device of every node, and the balance of variables [false]");
    parser_.add("--dry_run", raw_.dry_run,
                cat("print the ", defaults.benchmark ? "" : "device of every node and the ",
                    "memory planned per device, and exit; reads no data; --devices may name GPUs "
                    "that this machine lacks [false]"));
    if (!defaults.benchmark) {
      parser_.add(
          "--explain", raw_.explain, "NODE",
          "print why this node is on its device, and exit; takes GPUs as --dry_run does [none]");
      parser_.add("--trace_file", raw_.trace_file, "FILE",
                  "record step 2 (or the only one) for Perfetto or chrome://tracing [none]");
    }
    parser_.add(
        "--check_equivalence", raw_.check_equivalence, "N",
        "instead of training, run N steps with every trainer and strategy and compare all "
        "variables, memory, transfers and time; the exit code is 1 if modes that must agree "
        "do not, or training diverges [none]");
  }

  void execution() {
    parser_.group("Execution and output");
    parser_.add("--threads", raw_.threads, "N",
                cat("worker threads, the main thread included, at most ", kMostThreads,
                    "; 0: all usable cores (", usable_cores(), " here) [0]"));
    parser_.add("--json", raw_.json, "FILE", "write the results there, as one JSON object [none]");
  }

 private:
  FlagParser& parser_;
  RawFlags& raw_;
};

std::vector<double> parse_weights(const FlagValue& list) {
  std::vector<double> weights;
  if (!list.given()) return weights;
  for (const std::string_view text : split(list.text(), ','))
    weights.push_back(parse_number<double>(cat(list, ": '", shown(text), "'"), text));
  return weights;
}

void read_numbers(TrainFlags& flags, const RawFlags& raw) {
  constexpr int kMost = std::numeric_limits<int>::max();
  const auto not_negative = [](double x) { return x >= 0; };
  const auto positive = [](double x) { return x > 0; };
  read_integer(raw.repacking, 0, kMost, flags.gradient_repacking);
  read_switch(raw.fuse_updates, flags.fuse_updates);
  read_switch(raw.share_replicas, flags.share_replicas);
  read_integer(raw.small_tensors_kb, 0, kMost, flags.small_tensors_kb);
  read_integer(raw.batch_size, 1, kMost, flags.batch_size);
  read_integer(raw.epochs, 1, kMost, flags.epochs);
  read_integer(raw.max_steps, 0, std::numeric_limits<std::int64_t>::max(), flags.max_steps);
  flags.tower_weights = parse_weights(raw.tower_weights);
  read_integer(raw.threads, 0, kMostThreads, flags.threads);
  read_integer(raw.check_equivalence, 1, kMost, flags.check_equivalence);
  read_integer(raw.seed, 0, std::numeric_limits<std::uint64_t>::max(), flags.seed);
  read_number(
      raw.bucket_mb, cat("a number between 0 and ", kMostBucketMb),
      [](double x) { return x >= 0 && x <= kMostBucketMb; }, flags.bucket_mb);
  read_number(raw.nccl_timeout_s, "a number above 0", positive, flags.nccl_timeout_s);
  double rate = 0;
  read_number(raw.learning_rate, "a finite number >= 0", not_negative, rate);
  if (raw.learning_rate.given()) flags.learning_rate = rate;
}

void read_names(TrainFlags& flags, const RawFlags& raw) {
  if (raw.uneven.given())
    flags.uneven = as_flag(raw.uneven.str(), [&] { return find_uneven(raw.uneven.text()); });
  if (raw.precision.given())
    flags.precision =
        as_flag(raw.precision.str(), [&] { return find_precision(raw.precision.text()); });
  const std::string& parameters = raw.parameter_device.text();
  require<FlagError>(!raw.parameter_device.given() || parameters == "spread" || parameters == "cpu",
                     raw.parameter_device, " is neither spread nor cpu");
  flags.parameters_on_cpu = parameters == "cpu";
}

}  // namespace

TrainFlagSet::TrainFlagSet(FlagParser& parser, FlagDefaults defaults)
    : defaults_(std::move(defaults)), raw_(std::make_unique<RawFlags>()) {
  Definer define(parser, *raw_);
  define.devices_and_gradients();
  add_auto_flags(parser, raw_->automatic);
  define.training(defaults_);
  if (!defaults_.benchmark) define.files(defaults_);
  define.inspection(defaults_);
  define.execution();
  parser.add_spellings(tf_spellings(defaults_));
}

TrainFlagSet::~TrainFlagSet() = default;

TrainFlags TrainFlagSet::read(std::optional<int> batch_size, bool compares_auto) const {
  const RawFlags& raw = *raw_;
  TrainFlags flags;
  flags.batch_size = batch_size.value_or(defaults_.batch_size);
  flags.epochs = defaults_.epochs;
  read_numbers(flags, raw);
  read_names(flags, raw);
  flags.data_dir = raw.data_dir;
  flags.log_device_placement = raw.log_device_placement;
  flags.dry_run = raw.dry_run;
  flags.explain = raw.explain;
  DeviceFlags devices = read_devices(raw.devices, flags.plans());
  flags.devices = std::move(devices.devices);
  flags.logical_gpus = devices.logical_gpus;
  flags.deterministic = devices.deterministic;
  flags.algorithms = std::move(devices.algorithms);
  flags.trace_file = raw.trace_file;
  flags.save_checkpoint = raw.save_checkpoint;
  flags.restore_checkpoint = raw.restore_checkpoint;
  flags.overwrite = raw.overwrite;
  flags.json = raw.json;
  flags.automatic = raw.automatic;
  check_flags(flags, raw, compares_auto);
  return flags;
}

TrainFlags parse_flags(std::span<const char* const> arguments, const FlagDefaults& defaults) {
  FlagParser parser("Trains on one or more devices. Flags may be spelled with - or _.",
                    defaults.program);
  const TrainFlagSet set(parser, defaults);
  std::string help = parser.parse(arguments);
  if (!help.empty()) return {.help = std::move(help)};
  return set.read();
}

}  // namespace belfry
