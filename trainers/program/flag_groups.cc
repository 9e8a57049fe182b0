#include <cmath>
#include <limits>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/trainers/core/option_rows.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/options/option_fields.h"
#include "belfry/trainers/program/flag_groups_impl.h"
#include "belfry/trainers/program/run_flags.h"

namespace belfry {
namespace {

constexpr int kMostOfFlag = std::numeric_limits<int>::max();
constexpr double kMostStallSeconds = 1e9;
constexpr double kMostLostSeconds = 1e6;  // beats are counted by an int
constexpr int kMostExitCode = 255;
constexpr int kMostPlannedProcesses = 1 << 12;

constexpr auto trainer_in = [](auto& flags) -> auto& { return flags.trainer; };
constexpr auto files_in = [](auto& flags) -> auto& { return flags.files; };
constexpr auto inspection_in = [](auto& flags) -> auto& { return flags.inspection; };
constexpr auto group_in = [](auto& flags) -> auto& { return flags.group; };
constexpr auto session_in_flags = [](auto& flags) -> auto& { return flags.trainer.session; };

// "replicated (a copy of all variables per device) | simple (one tower)".
std::string trainers_text() {
  std::vector<std::string> texts;
  for (const std::string& name : trainer_names())
    texts.push_back(cat(name, " (", find_trainer(name).summary, ")"));
  return join(texts, " | ");
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

// Sets the number of heartbeats that may fail to come.
void read_lost_after(WatchOptions& watch, const WrittenFlag& flag) {
  double seconds = 0;
  read_number(
      flag, "0 or a number of at least 1", [](double x) { return x == 0 || x >= 1; }, seconds);
  const double beat = std::chrono::duration<double>(watch.beat).count();
  watch.most_silent = static_cast<int>(std::ceil(std::min(seconds, kMostLostSeconds) / beat));
}

// A row whose value is not simply one field.
Option<TrainFlags> special_option(OptionRow row, void (*read)(TrainFlags&, const WrittenFlag&),
                                  JsonValue (*value)(const TrainFlags&) = nullptr) {
  Option<TrainFlags> option{std::move(row)};
  option.read = read;
  if (value) option.value = value;
  return option;
}

// The table of all flags of training.
class FlagTable {
 public:
  explicit FlagTable(const FlagDefaults& defaults) : defaults_(defaults) {}

  Options<TrainFlags> make() {
    add_devices();
    add_training();
    if (!defaults_.benchmark) {
      add_data();
      group_ = "Runs";
      add_part(
          all_, run_options(), group_, [](auto& flags) -> auto& { return flags.run; });
      add_overwrite();
    }
    add_part(
        all_, config_options(), defaults_.benchmark ? group_ : "Runs",
        [](auto& flags) -> auto& { return flags.run; });
    add_inspection();
    add_own();
    add_execution();
    if (defaults_.benchmark)
      std::erase_if(all_, [](const OptionRow& row) { return !row.benchmarks; });
    return std::move(all_);
  }

 private:
  void add(Option<TrainFlags> option) {
    option.group = group_;
    all_.push_back(std::move(option));
  }
  void add(const Options<TrainerOptions>& options) { add_part(all_, options, group_, trainer_in); }
  template <class S, class Part>
  void add(const Option<S>& option, Part part) {
    add(of_part<TrainFlags>(option, part));
  }
  void set_default(std::string_view name, const std::string& otherwise) {
    for (Option<TrainFlags>& option : all_)
      if (option.name == name) option.otherwise = otherwise;
  }

  void add_devices() {
    group_ = "Devices and gradients";
    add_part(all_, device_options(), group_, device_flags);
    add(special_option(
        {.name = "trainer",
         .unit = "NAME",
         .text = trainers_text(),
         .otherwise = "simple with one device, else replicated",
         .trains = true,
         .chosen = true,
         .reported = true,
         .compared = false},
        [](TrainFlags& flags, const WrittenFlag& flag) { flags.kind = flag.value; },
        [](const TrainFlags& flags) { return JsonValue(flags.kind); }));
    add(combining_options());
    group_ = kAutoGroup;
    add(
        links_option(), [](auto& flags) -> auto& { return flags.links; });
    add(
        auto_any_option(),
        [](auto& flags) -> auto& { return flags.trainer.aggregation.choice.any; });
  }

  void add_training() {
    group_ = "Training";
    add(batch_options());
    set_default("batch_size", defaults_.benchmark               ? "the model's"
                              : defaults_.global_batch_size > 0 ? "`global_batch_size` divided by "
                                                                  "devices"
                                                                : cat(defaults_.batch_size));
    auto global = whole_number(
        &TrainFlags::global_batch_size, 1, kMostOfFlag,
        {.name = "global_batch_size",
         .unit = "N",
         .text = "examples per step on all devices together, instead of `batch_size` on each",
         .otherwise = defaults_.global_batch_size > 0 ? cat(defaults_.global_batch_size) : "",
         .noted = false});
    add(global);
    add(length_options());
    set_default("epochs", cat(defaults_.epochs));
    add_part(
        all_, optimizer_options(), group_, [](auto& flags) -> auto& { return flags.optimizer; });
    add(parsed(&TrainFlags::early_stop, parse_early_stop,
               {.name = "early_stop",
                .unit = "METRIC:min|max:N",
                .text = "end the training when N evaluations in a row bring no lower (or higher) "
                        "value of a metric, e.g. validation_loss:min:3; a fourth part, as in "
                        "validation_loss:min:3:0.01, is the least improvement that counts. "
                        "Metrics of training steps are looked at after each epoch, too",
                .otherwise = "none",
                .trains = true,
                .benchmarks = false,
                .compared = false,
                .elsewhere = {"patience"}}));
    add_evaluation();
    add(computing_options());
  }

  void add_evaluation() {
    const auto evaluation_in = [](auto& flags) -> auto& { return flags.evaluation; };
    add(whole_number(&EvaluationOptions::every_epochs, 0, kMostOfFlag,
                     {.name = "eval_every_epochs",
                      .unit = "N",
                      .text = "evaluate the test data after every Nth epoch, and after training; "
                              "0: not after epochs, and without `eval_every_steps` never, so that "
                              "no test data are read",
                      .otherwise = "1",
                      .trains = true,
                      .benchmarks = false,
                      .compared = false}),
        evaluation_in);
    add(whole_number(
            &EvaluationOptions::every_steps, 0, kMostOfFlag,
            {.name = "eval_every_steps",
             .unit = "N",
             .text = "evaluate the test data after every Nth step, too; 0: not after steps",
             .otherwise = "0",
             .trains = true,
             .benchmarks = false,
             .compared = false}),
        evaluation_in);
    add(whole_number(&EvaluationOptions::batches, 0, kMostOfFlag,
                     {.name = "eval_batches",
                      .unit = "N",
                      .text = "take only the first samples of the test data, as many as N steps of "
                              "one batch do; 0: all",
                      .otherwise = "0",
                      .benchmarks = false,
                      .compared = false}),
        evaluation_in);
    add(on_off(&TrainerOptions::evaluates_only,
               {.name = "evaluate_only",
                .text = "evaluate the weights of `load` or `resume=PATH`, and train nothing; flags "
                        "about training have no use then, and those of `config` are left out",
                .otherwise = "false",
                .scope = Scope::kThisCall,
                .benchmarks = false,
                .compared = false}),
        trainer_in);
  }

  void add_data() {
    group_ = "Data";
    if (defaults_.reads_files) {
      add(any_text(&FileFlags::data_dir,
                   {.name = "data_dir",
                    .unit = "DIR",
                    .text = "folder with the data files, for the program's data set",
                    .otherwise = "none",
                    .own_process = true,
                    .noted = false,
                    .elsewhere = {"dataset", "data"}}),
          files_in);
      add(parsed(
              &FileFlags::bad_records, parse_bad_records,
              {.name = "bad_records",
               .unit = "stop|skip:N",
               .text = "what to do with records of data files that cannot be used: end with an "
                       "error that names the first, or skip up to N in each data set and warn of "
                       "each",
               .otherwise = "stop"}),
          files_in);
    }
    add(data_options());
  }

  void add_overwrite() {
    add(on_off(&FileFlags::overwrite,
               {.name = "overwrite",
                .text = "let `resume=never` or `resume=PATH` replace the run in `run_dir`",
                .otherwise = "false",
                .scope = Scope::kThisCall,
                .trains = true}),
        files_in);
  }

  void add_plans() {
    add(on_off(&SessionOptions::log_device_placement,
               {.name = "log_device_placement",
                .text = "print the device of every node, and the balance of variables",
                .otherwise = "false",
                .noted = false,
                .benchmarks = false,
                .compared = false}),
        session_in_flags);
    add(on_off(
            &InspectionFlags::dry_run,
            {.name = "dry_run",
             .text = cat("print the ", defaults_.benchmark ? "" : "device of every node and the ",
                         "memory planned per device, and exit; takes no samples of data; "
                         "`devices` may name GPUs that this machine lacks"),
             .otherwise = "false",
             .scope = Scope::kThisCall,
             .compared = false}),
        inspection_in);
    add(whole_number(
            &GroupFlags::processes, 1, kMostPlannedProcesses,
            {.name = "processes",
             .unit = "N",
             .text = "with `dry_run`: plan one of N processes, each with `devices`, without "
                     "starting any; prints the bytes that it sends within its host and between "
                     "hosts",
             .otherwise = "those that a launcher started",
             .scope = Scope::kThisCall,
             .own_process = true}),
        group_in);
    add(whole_number(&SessionOptions::planned_per_host, 1, kMostPlannedProcesses,
                     {.name = "processes_per_host",
                      .unit = "N",
                      .text = "with `processes`: how many of them share a host",
                      .otherwise = "1",
                      .scope = Scope::kThisCall,
                      .own_process = true}),
        session_in_flags);
  }

  void add_inspection() {
    group_ = "Inspection";
    add_plans();
    add(on_off(&InspectionFlags::summary,
               {.name = "summary",
                .text = "print layers with output shapes, parameters, multiply-adds and bytes, and "
                        "exit; reads no data; takes GPUs as `dry_run` does",
                .otherwise = "false",
                .scope = Scope::kThisCall,
                .compared = false}),
        inspection_in);
    add(on_off(
            &InspectionFlags::mfu,
            {.name = "mfu",
             .text = "before training, measure the peak of the devices with products of matrices, "
                     "for a second or so on CPUs; then report the share of it that training "
                     "reaches, at twice the multiply-adds of `summary` per step",
             .otherwise = "false",
             .trains = true,
             .noted = false}),
        inspection_in);
    add(any_text(&InspectionFlags::explain,
                 {.name = "explain",
                  .unit = "NODE",
                  .text = "print why this node is on its device, and exit; takes GPUs as "
                          "`dry_run` does",
                  .otherwise = "none",
                  .scope = Scope::kThisCall,
                  .benchmarks = false,
                  .compared = false}),
        inspection_in);
    add(any_text(&FileFlags::step,
                 {.name = "write_step",
                  .unit = "FILE",
                  .text = "instead of training, compute one step on the first device, with the "
                          "weights of `load` if it is given; write its samples, random numbers, "
                          "variables, loss and gradients there (safetensors), to compare them with "
                          "those of another program",
                  .otherwise = "none",
                  .scope = Scope::kThisCall,
                  .benchmarks = false,
                  .compared = false}),
        files_in);
    add(any_text(
            &FileFlags::metrics,
            {.name = "metrics_file",
             .unit = "FILE",
             .text = "while training, write steps, loss, metrics, rates, speed and memory there "
                     "every 5 seconds, as Prometheus' node exporter reads them",
             .otherwise = "none",
             .scope = Scope::kThisCall,
             .own_process = true,
             .of_training = true,
             .benchmarks = false}),
        files_in);
    auto trace = any_text(
        &FileFlags::trace_file,
        {.name = "trace_file",
         .unit = "FILE",
         .text = cat("record ",
                     defaults_.benchmark ? "the last warm-up step" : "step 2 (or the only one)",
                     " for Perfetto or chrome://tracing; several processes share one file"),
         .otherwise = "none",
         .scope = Scope::kThisCall,
         .of_training = true,
         .trains = true});
    // All processes make traces together, and rank 0 writes them.
    trace.value = [](const FileFlags& files) {
      return JsonValue(files.trace_file.empty() ? "not given" : "given");
    };
    add(trace, files_in);
    add(any_text(
            &FileFlags::memory_report,
            {.name = "memory_report",
             .unit = "FILE",
             .text =
                 "write there what the planned memory is for, by kind and device, and its largest "
                 "tensors, as one JSON object; also with `dry_run`. planned_bytes, which `json` "
                 "has, too, is the sum over all devices and other memory of the process",
             .otherwise = "none",
             .scope = Scope::kThisCall,
             .own_process = true}),
        files_in);
    add(whole_number(
            &InspectionFlags::check_equivalence, 1, kMostOfFlag,
            {.name = "check_equivalence",
             .unit = "N",
             .text = "instead of training, run N steps with every trainer and strategy and compare "
                     "all variables, memory, transfers and time; the exit code is 1 if modes that "
                     "must agree do not, or training diverges",
             .otherwise = "none",
             .scope = Scope::kThisCall}),
        inspection_in);
    add(any_text(
            &InspectionFlags::replay,
            {.name = "replay",
             .unit = "RUN",
             .text = "compare each step with the hashes that this run has noted, and end after "
                     "`replay_step`, as belfry replay asks it to",
             .otherwise = "none",
             .scope = Scope::kThisCall,
             .trains = true,
             .benchmarks = false,
             .compared = false}),
        inspection_in);
    add(whole_number(&InspectionFlags::replay_step, 1, std::numeric_limits<std::int64_t>::max(),
                     {.name = "replay_step",
                      .unit = "S",
                      .text = "the last step that `replay` compares, counted from 1",
                      .otherwise = "none",
                      .scope = Scope::kThisCall,
                      .trains = true,
                      .benchmarks = false,
                      .compared = false}),
        inspection_in);
  }

  void add_own() {
    group_ = "Of this program";
    for (const OwnOption& own : defaults_.own) {
      add(own_option<TrainFlags>(own, "the recipe's flag"));
      // A recipe's option is part of the model and the data, which identities know.
      if (all_.back().scope == Scope::kResults) all_.back().scope = Scope::kExecution;
      all_.back().of_program = true;
    }
    for (const std::string& name : trainer_names()) {
      group_ = cat("Of the trainer ", name);
      for (const Option<TrainerOptions>& own : own_option_rows(find_trainer(name))) {
        add(of_part<TrainFlags>(own, trainer_in));
        Option<TrainFlags>& option = all_.back();
        option.chosen = true;
        option.trains = true;
        option.only_of = name;
      }
    }
  }

  void add_execution() {
    group_ = "Execution and output";
    add(execution_options());
    for (Option<TrainFlags>& option : all_)
      if (option.name == "threads") option.here = cat("(", usable_cores(), " here)");
    add_watch();
    add(any_text(&FileFlags::json, {.name = "json",
                                    .unit = "FILE",
                                    .text = "write the results there, as one JSON object",
                                    .otherwise = "none",
                                    .scope = Scope::kThisCall,
                                    .own_process = true}),
        files_in);
  }

  // Of several processes, and of runs that hang.
  void add_watch() {
    add(special_option(
        {.name = "mpi",
         .unit = "auto|off",
         .text = "off: this process trains alone, even if a launcher has started others with it, "
                 "by MPI or with RANK and WORLD_SIZE",
         .otherwise = "auto"},
        [](TrainFlags& flags, const WrittenFlag& flag) {
          flags.group.alone = is_second(flag, "auto", "off");
        }));
    add(special_option(
        {.name = "lost_after_seconds",
         .unit = "X",
         .text = "with several processes: end with an error when one sends no heartbeat for X "
                 "seconds. A host that is paused, or a link that is down, for a shorter time only "
                 "delays the others; 0: never",
         .otherwise = "5"},
        [](TrainFlags& flags, const WrittenFlag& flag) {
          read_lost_after(flags.group.watch, flag);
        }));
    add(parsed(&GroupFlags::meeting_timeout, meeting_timeout,
               {.name = "meeting_timeout_s",
                .unit = "X",
                .text = "with several processes that connect by TCP: end with an error if they are "
                        "not all connected within X seconds",
                .otherwise = "300",
                .scope = Scope::kThisCall,
                .own_process = true}),
        group_in);
    add(on_off(&GroupFlags::insecure,
               {.name = "insecure",
                .text = "let processes connect without a token (BELFRY_TOKEN) where other machines "
                        "can reach them; BELFRY_INSECURE=1 does the same. Anybody who can reach "
                        "the port can then join",
                .otherwise = "false",
                .scope = Scope::kThisCall,
                .own_process = true}),
        group_in);
    add(special_option(
        {.name = "stall_warn_seconds",
         .unit = "X",
         .text = "warn when a run has made no progress for X seconds, and name the op, data set or "
                 "callback that it waits for. With several processes, also warn when a message has "
                 "waited so long, and name the late ones; 0: never",
         .otherwise = "10"},
        [](TrainFlags& flags, const WrittenFlag& flag) {
          flags.group.watch.stall_warn = stall_milliseconds(stall_seconds(flag));
        }));
    add(special_option(
        {.name = "stall_abort_seconds",
         .unit = "X",
         .text = "end with an error when an op, data set or callback has made no progress for X "
                 "seconds, or when one of these has waited so long: a message for a process that "
                 "computes, all processes for each other, or a collective of `allreduce=nccl`; 0: "
                 "never",
         .otherwise = "600"},
        [](TrainFlags& flags, const WrittenFlag& flag) {
          const double seconds = stall_seconds(flag);
          flags.group.watch.stall_end = stall_milliseconds(seconds);
          flags.trainer.session.stall_abort_seconds = seconds > 0 ? seconds : kMostStallSeconds;
        }));
    auto code = whole_number(&GroupFlags::stall_exit_code, 1, kMostExitCode,
                             {.name = "stall_exit_code",
                              .unit = "N",
                              .text = "the exit code of a run that `stall_abort_seconds` has ended",
                              .otherwise = cat(kStallExitCode),
                              .noted = false});
    add(code, group_in);
  }

  const FlagDefaults& defaults_;
  std::string group_;
  Options<TrainFlags> all_;
};

}  // namespace

DeviceFlags device_flags(TrainFlags& flags) {
  SessionOptions& session = flags.trainer.session;
  return {flags.trainer.devices, session.logical_gpus, session.deterministic,
          flags.files.algorithms};
}

Options<TrainFlags> training_options(const FlagDefaults& defaults) {
  return FlagTable(defaults).make();
}

}  // namespace belfry
