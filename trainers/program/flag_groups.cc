#include <algorithm>
#include <cmath>
#include <limits>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/small_tensors.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/trainers/core/auto_choice.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/program/flag_groups_impl.h"

namespace belfry {
namespace {

constexpr int kMostInt = std::numeric_limits<int>::max();
constexpr double kMostStallSeconds = 1e9;
constexpr double kMostLostSeconds = 1e6;  // beats are counted by an int
constexpr int kMostExitCode = 255;
constexpr int kMostPlannedProcesses = 1 << 12;

std::string alternatives(const std::vector<std::string>& names) { return join(names, "|"); }

// "replicated (a copy of all variables per device) | simple (one tower)".
std::string trainers_text() {
  std::vector<std::string> texts;
  for (const std::string& name : trainer_names())
    texts.push_back(cat(name, " (", find_trainer(name).summary, ")"));
  return join(texts, " | ");
}

// Reads --tower_weights.
std::vector<double> parse_weights(const WrittenFlag& list) {
  std::vector<double> weights;
  for (const std::string_view text : split(list.value, ',')) {
    require<FlagError>(!text.empty(), list.written,
                       ": a number is missing beside a comma; write one for each device with one "
                       "comma between, such as 2,1");
    weights.push_back(parse_number<double>(cat(list.written, ": '", shown(text), "'"), text));
  }
  return weights;
}

// Reads --recompute.
std::vector<std::string> parse_scopes(const WrittenFlag& list) {
  std::vector<std::string> scopes;
  for (const std::string_view scope : split(list.value, ',')) {
    require<FlagError>(!scope.empty() && !scope.starts_with('/') && !scope.ends_with('/'),
                       list.written, ": '", shown(scope),
                       "' is no name scope; write names with one comma between and no slash around "
                       "them, such as fc0,block*");
    scopes.emplace_back(scope);
  }
  return scopes;
}

// Reads a flag whose value is one of two words.
struct OneOf {
  std::string first, second;
  std::string operator()(const WrittenFlag& flag) const {
    require<FlagError>(flag.value == first || flag.value == second, flag.written, " is neither ",
                       first, " nor ", second);
    return flag.value;
  }
};

// Reads such a flag: true for the second word.
struct IsSecond {
  OneOf words;
  bool operator()(const WrittenFlag& flag) const { return words(flag) == words.second; }
};

OnNonfinite parse_on_nonfinite(const WrittenFlag& flag) {
  return IsSecond{{"stop", "continue"}}(flag) ? OnNonfinite::kContinue : OnNonfinite::kStop;
}

double stall_seconds(const WrittenFlag& flag) {
  double seconds = 0;
  read_number(
      flag, "a number of at least 0", [](double x) { return x >= 0; }, seconds);
  return std::min(seconds, kMostStallSeconds);
}

std::chrono::milliseconds stall_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

std::chrono::milliseconds meeting_timeout(const WrittenFlag& flag) {
  double seconds = 0;
  read_number(
      flag, "a number above 0", [](double x) { return x > 0; }, seconds);
  return std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(std::min(seconds, kMostStallSeconds)));
}

// Reads --lost_after_seconds, in signs of life that fail to come.
struct LostAfter {
  WatchOptions& watch;
  void operator()(const WrittenFlag& flag) const {
    double seconds = 0;
    read_number(
        flag, "0 or a number of at least 1", [](double x) { return x == 0 || x >= 1; }, seconds);
    const double beat = std::chrono::duration<double>(watch.beat).count();
    watch.most_silent = static_cast<int>(std::ceil(std::min(seconds, kMostLostSeconds) / beat));
  }
};

void add_packing(FlagParser& parser, AggregationOptions& aggregation) {
  parser.add("--gradient_repacking", aggregation.gradient_repacking, 0, kMostInt, "N",
             "pack all gradients into N parts before they are combined; 0: do not [0]");
  parser.add("--small_tensors_kb", aggregation.small_tensors_kb, 0, kMostInt, "N",
             cat("pack up to ", kMostInSmallPack,
                 " f32 gradients in a row of at most N KiB each into one; 0: do not [0]"));
  parser.add_number(
      "--bucket_mb", aggregation.bucket_mb, cat("a number between 0 and ", kMostBucketMb),
      [](double x) { return x >= 0 && x <= kMostBucketMb; }, "X",
      cat("combine gradients in buckets of at most X MiB, the last ones first, while "
          "others are being computed; 0: each by itself [",
          kDefaultBucketMb,
          "; 0 with --gradient_repacking; what is fastest with --allreduce=auto]"));
}

void add_updates(FlagParser& parser, TrainerOptions& trainer) {
  parser.add("--partition_updates", trainer.aggregation.partition_updates, "0|1",
             "of several processes each keeps the optimizer's slots of a part of every variable, "
             "and updates that part; with --allreduce=collective; the same bits [0]");
  parser.add(
      "--fuse", trainer.session.fuse, "0|1",
      "one pass over memory for norms with the sums and ReLU around them, for a bias with the "
      "activation behind it, for their gradients, and for a sum of gradients with its updates; "
      "on GPUs several updates in one launch; on hosts batch norm with ReLU is made again for "
      "gradients; the same bits [1]");
  parser.add("--share_replicas", trainer.session.share_replicas, "0|1",
             "one storage for equal replicas in one memory space; the same bits [1]");
  parser.add_parsed(
      "--async", trainer.async, OneOf{"ordered", "free"}, "ordered|free",
      "of --trainer=async. ordered: all gradients at the same values, then an update per "
      "tower; free: each tower on a thread of its own, never the same bits twice [ordered]");
}

void add_batches(FlagParser& parser, TrainFlags& flags, const FlagDefaults& defaults) {
  TrainerOptions& trainer = flags.trainer;
  parser.add("--batch_size", trainer.batch_size, 1, kMostInt, "N",
             cat("examples per device and step [",
                 defaults.benchmark               ? "the model's"
                 : defaults.global_batch_size > 0 ? "--global_batch_size divided by devices"
                                                  : cat(defaults.batch_size),
                 "]"));
  parser.add("--global_batch_size", flags.global_batch_size, 1, kMostInt, "N",
             cat("examples per step on all devices together, instead of --batch_size on each",
                 defaults.global_batch_size > 0 ? cat(" [", defaults.global_batch_size, "]") : ""));
  parser.add("--shards", trainer.shards, 1, kMostInt, "V",
             "parts of the global batch that are computed apart, as many on each CPU: any core may "
             "compute one, and V alone decides the bits of results [by model and global batch]");
  parser.add("--gradient_accumulation_steps", trainer.batches.gradient_accumulation_steps, 1,
             kMostInt, "N",
             "batches per step, one after another: one update by the mean of their gradients, as "
             "with N times the batch; schedules and progress count "
             "updates [1]");
  if (!defaults.benchmark)
    parser.add_parsed("--uneven", trainer.batches.uneven, find_uneven, "WAY",
                      "drop|pad|weight|error: what to do with examples that do not fill a last "
                      "batch [drop]");
  parser.add_parsed(
      "--tower_weights", trainer.batches.tower_weights, parse_weights, "LIST",
      "share of each device in a batch of --batch_size examples per device, a number for "
      "each, e.g. 2,1; gradients count by examples [equal]");
}

void add_computation(FlagParser& parser, TrainerOptions& trainer) {
  parser.add_parsed(
      "--precision", trainer.precision, find_precision, "TYPE",
      cat(alternatives(precision_names()),
          ": what the model computes in; variables are f32. tf32: GPUs alone; bf16, f16: "
          "slow on CPUs; f16 scales the loss, and skips updates that are not finite "
          "[f32]"));
  parser.add_parsed(
      "--recompute", trainer.recompute, parse_scopes, "SCOPES",
      "name scopes, with commas between, whose activations the backward pass computes again, so "
      "that they are not kept: the same bits in less memory; block* is each scope that begins so "
      "[none]");
  parser.add("--seed", trainer.seed, 0, std::numeric_limits<std::uint64_t>::max(), "N",
             "of initial values, the order of the data and dropout, >= 0 [1]");
}

void add_plans(FlagParser& parser, TrainFlags& flags, const FlagDefaults& defaults) {
  if (!defaults.benchmark)
    parser.add("--log_device_placement", flags.trainer.session.log_device_placement,
               "print the device of every node, and the balance of variables [false]");
  parser.add(
      "--dry_run", flags.inspection.dry_run,
      cat("print the ", defaults.benchmark ? "" : "device of every node and the ",
          "memory planned per device, and exit; takes no samples of data; --devices may name GPUs "
          "that this machine lacks [false]"));
  parser.add("--processes", flags.group.processes, 1, kMostPlannedProcesses, "N",
             "with --dry_run: plan one of N processes with --devices each, without starting any; "
             "prints what crosses links within its host and between hosts [those that a launcher "
             "started]");
  parser.add("--processes_per_host", flags.trainer.session.planned_per_host, 1,
             kMostPlannedProcesses, "N", "with --processes: so many of them share a host [1]");
}

}  // namespace

DeviceFlags device_flags(TrainFlags& flags) {
  SessionOptions& session = flags.trainer.session;
  return {flags.trainer.devices, session.logical_gpus, session.deterministic,
          flags.files.algorithms};
}

void add_devices_and_gradients(FlagParser& parser, TrainFlags& flags) {
  TrainerOptions& trainer = flags.trainer;
  parser.group("Devices and gradients");
  add_device_flags(parser, device_flags(flags));
  parser.add("--trainer", flags.kind, "NAME",
             trainers_text() + " [simple with one device, else replicated]");
  parser.add("--allreduce", trainer.aggregation.allreduce, "SPEC",
             cat(alternatives(strategy_names()),
                 "|auto; parameter_server takes colocate, replicated all others; auto: the one "
                 "that is predicted to be fastest for this model; NAME#N in N chunks per "
                 "tensor, at most ",
                 kMostChunks,
                 " (ring, shuffle, collective); NAME:SIZE:NAME by size: tensors of up to SIZE "
                 "bytes (K, M, G, T: powers of 1024) by the first [collective; of "
                 "parameter_server: colocate]"));
  parser.add_parsed(
      "--parameter_device", trainer.parameters_on_cpu, IsSecond{{"spread", "cpu"}}, "spread|cpu",
      "of --trainer=parameter_server and async: variables are spread over the devices, "
      "or all on cpu:0 [spread]");
  add_packing(parser, trainer.aggregation);
  add_updates(parser, trainer);
}

void add_training(FlagParser& parser, TrainFlags& flags, const FlagDefaults& defaults) {
  TrainerOptions& trainer = flags.trainer;
  parser.group("Training");
  add_batches(parser, flags, defaults);
  if (!defaults.benchmark) {
    parser.add("--epochs", trainer.epochs, 1, kMostInt, "N",
               cat("passes over the training data [", defaults.epochs, "]"));
    parser.add("--max_steps", trainer.max_steps, 0, std::numeric_limits<std::int64_t>::max(), "N",
               "stop after N steps at the latest; 0: no limit [0]");
  }
  add_optimizer_flags(parser, flags.optimizer, trainer.clip_norm);
  if (!defaults.benchmark) {
    parser.add_parsed(
        "--early_stop", flags.early_stop, parse_early_stop, "METRIC:min|max:N",
        "end the training when N evaluations in a row bring no lower (or higher) value of a "
        "metric, e.g. validation_loss:min:3; with a fourth part, no value lower by more than that "
        "[none]");
    parser.add_parsed("--on_nonfinite", trainer.on_nonfinite, parse_on_nonfinite, "stop|continue",
                      "what to do when the loss is NaN or infinite: end with an error after that "
                      "step, or train on, and end with the error if it still is; steps that f16 "
                      "skips do not count [stop]");
  }
  add_computation(parser, trainer);
}

void add_data(FlagParser& parser, TrainFlags& flags, const FlagDefaults& defaults) {
  parser.group("Data");
  if (defaults.reads_files) {
    parser.add("--data_dir", flags.files.data_dir, "DIR",
               "folder with the data files, for the program's data set [none]");
    parser.add_parsed(
        "--bad_records", flags.files.bad_records, parse_bad_records, "stop|skip:N",
        "what to do with records of data files that cannot be used: end with an error that names "
        "the first, or leave out up to N of each data set and warn of each [stop]");
  }
  parser.add("--data_workers", flags.trainer.data_workers, 1, kMostThreads, "N",
             "threads that decode and change the samples of a batch, beside --threads; results do "
             "not depend on N [1]");
}

void add_overwrite(FlagParser& parser, FileFlags& files) {
  parser.add("--overwrite", files.overwrite,
             "let --resume=never or --resume=PATH replace the run in --run_dir [false]");
}

void add_inspection(FlagParser& parser, TrainFlags& flags, const FlagDefaults& defaults) {
  parser.group("Inspection");
  add_plans(parser, flags, defaults);
  parser.add(
      "--summary", flags.inspection.summary,
      "print layers with output shapes, parameters, multiply-adds and bytes, and exit; reads "
      "no data; takes GPUs as --dry_run does [false]");
  parser.add(
      "--mfu", flags.inspection.mfu,
      "before training, time products of matrices on the devices, for a second or so on CPUs, "
      "and tell what share of that peak training reaches: twice the multiply-adds of "
      "--summary per second [false]");
  if (!defaults.benchmark)
    parser.add(
        "--explain", flags.inspection.explain, "NODE",
        "print why this node is on its device, and exit; takes GPUs as --dry_run does [none]");
  parser.add(
      "--trace_file", flags.files.trace_file, "FILE",
      cat("record ", defaults.benchmark ? "the last warm-up step" : "step 2 (or the only one)",
          " for Perfetto or chrome://tracing, of several processes all in one [none]"));
  parser.add("--memory_report", flags.files.memory_report, "FILE",
             "write there what the planned memory is for, by kind and device, and its largest "
             "tensors, as one JSON object; with --dry_run, too. planned_bytes, also of --json, is "
             "the sum over all devices and what else is held [none]");
  parser.add("--check_equivalence", flags.inspection.check_equivalence, 1, kMostInt, "N",
             "instead of training, run N steps with every trainer and strategy and compare all "
             "variables, memory, transfers and time; the exit code is 1 if modes that must agree "
             "do not, or training diverges [none]");
}

void add_execution(FlagParser& parser, TrainFlags& flags) {
  parser.group("Execution and output");
  parser.add("--threads", flags.trainer.session.threads, 0, kMostThreads, "N",
             cat("worker threads, the main thread included, at most ", kMostThreads,
                 "; 0: all usable cores (", usable_cores(), " here) [0]"));
  parser.add_parsed(
      "--mpi", flags.group.alone, IsSecond{{"auto", "off"}}, "auto|off",
      "off: this process trains alone, whoever has started it with others: a launcher of MPI, or "
      "one that sets RANK and WORLD_SIZE [auto]");
  parser.add("--lost_after_seconds", LostAfter{flags.group.watch}, "X",
             "with several processes: end with an error when one gives no sign of life for X "
             "seconds. A host that is paused, or a link that is down, for less only delays the "
             "others; 0: never [5]");
  parser.add_parsed(
      "--meeting_timeout_s", flags.group.meeting_timeout, meeting_timeout, "X",
      "with several processes that meet by TCP: end with an error if they have not all met in X "
      "seconds [300]");
  parser.add("--insecure", flags.group.insecure,
             "let processes meet without a token (BELFRY_TOKEN) where other machines reach them, "
             "also by BELFRY_INSECURE=1; whoever reaches the port can then join [false]");
  parser.add_parsed(
      "--stall_warn_seconds", flags.group.watch.stall_warn,
      [](const WrittenFlag& flag) { return stall_milliseconds(stall_seconds(flag)); }, "X",
      "tell which op, data set or callback a run waits for when it has made no progress for X "
      "seconds; with several processes also which of them are late, when a message has waited so "
      "long; 0: never [10]");
  parser.add(
      "--stall_abort_seconds",
      [&flags](const WrittenFlag& flag) {
        const double seconds = stall_seconds(flag);
        flags.group.watch.stall_end = stall_milliseconds(seconds);
        flags.trainer.session.stall_abort_seconds = seconds > 0 ? seconds : kMostStallSeconds;
      },
      "X",
      "end with an error when an op, data set or callback has made no progress for X seconds, or a "
      "message has waited so long for a process that computes, or a collective of --allreduce=nccl "
      "has; 0: never [600]");
  parser.add("--stall_exit_code", flags.group.stall_exit_code, 1, kMostExitCode, "N",
             cat("the exit code of such an end [", kStallExitCode, "]"));
  parser.add("--json", flags.files.json, "FILE",
             "write the results there, as one JSON object [none]");
}

}  // namespace belfry
