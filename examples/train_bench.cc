// How fast models train on synthetic data, and by which strategy: prints what tf_cnn_benchmarks
// prints. Try: train_bench --model=resnet20 --devices=cpu:4 --strategies=all --plot=resnet20.svg
#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <span>

#include "belfry/belfry.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/bench/bench_report.h"
#include "belfry/trainers/bench/equivalence.h"
#include "belfry/trainers/bench/mode_bench.h"
#include "belfry/trainers/bench/models.h"
#include "belfry/trainers/bench/modes.h"
#include "belfry/trainers/callbacks/step_timer.h"
#include "belfry/trainers/program/algorithms_file.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/program/inspect.h"
#include "belfry/trainers/program/make_report.h"
#include "belfry/trainers/program/memory_report.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/program/program_processes.h"
#include "belfry/trainers/program/run_flags.h"
#include "belfry/trainers/program/strategy_list.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/hash.h"
#include "belfry/trainers/util/output_file.h"
#include "belfry/trainers/util/statistics.h"
using namespace belfry;

struct BenchFlags {
  std::string model_name = "mnist";
  int image_size = 0, sequence_length = 0;  // 0: the model's
  BatchNormOver batch_norm = BatchNormOver::kTower;
  double label_smoothing = 0;
  ModelSpec model;
  StrategyList strategies;  // --strategies
  TrainFlags training;
  std::vector<Mode> modes;
  bool compares = false;        // --strategies
  bool lists_refusals = false;  // modes that cannot serve are no error
  std::int64_t num_batches = 100, num_warmup_batches = 10, display_every = 10;
  int repetitions = 3;
  std::string plot, help;
};

void add_flags(FlagParser& parser, BenchFlags& wanted) {
  constexpr std::int64_t kMost = 1'000'000'000;
  parser.group("Benchmark");
  parser.add("--model", wanted.model_name, "NAME", join(model_names(), "|") + " [mnist]");
  parser.add("--image_size", wanted.image_size, 1, 1 << 14, "N",
             "height and width of the synthetic images, pixels [the model's]");
  parser.add("--sequence_length", wanted.sequence_length, 1, 1 << 16, "N",
             "synthetic tokens of a sample, for --model=gpt; a sample counts as an image [256]");
  parser.add(
      "--batch_norm",
      [&to = wanted.batch_norm](const WrittenFlag& flag) {
        to = as_flag(flag.written, [&] { return find_batch_norm_over(flag.value); });
      },
      "NAME",
      "tower|synchronised: statistics of each device's batch, or of all devices' together; with "
      "the latter the bits do not depend on the number of devices [tower]");
  parser.add(
      "--label_smoothing",
      [&to = wanted.label_smoothing](const WrittenFlag& flag) {
        read_number(
            flag, "a number from 0 to 1", [](double x) { return x >= 0 && x <= 1; }, to);
      },
      "X", "share of the target that is spread evenly over all classes [0]");
  parser.add("--num_batches", wanted.num_batches, 1, kMost, "N", "timed steps [100]");
  parser.add("--num_warmup_batches", wanted.num_warmup_batches, 0, kMost, "N",
             "steps before those [10]");
  parser.add("--display_every", wanted.display_every, 1, kMost, "N",
             "print a line after the first timed step and every N steps [10]");
  parser.add(
      "--strategies",
      [&to = wanted.strategies](const WrittenFlag& flag) { to = parse_strategies(flag.value); },
      "LIST",
      "compare strategies of --allreduce: all, or names separated by commas, auto among "
      "them; ratios are to the first, with all to collective [none]");
  parser.add("--repetitions", wanted.repetitions, 1, 1000, "N",
             "with --strategies, rounds over all of them [3]");
  parser.add("--plot", wanted.plot, "FILE",
             "with --strategies, write a bar chart there, SVG [none]");
}

void check(const FlagParser& parser, const TrainFlags& training) {
  const auto refuse = [&](std::initializer_list<const char*> flags, std::string_view why) {
    for (const char* flag : flags)
      require<FlagError>(!parser.given(flag), parser.flag(flag).written, " has no use ", why);
  };
  if (parser.given("--strategies"))
    refuse({"--allreduce"}, "beside --strategies, which names them all");
  else
    refuse({"--repetitions", "--plot"}, "without --strategies");
  if (parser.given("--strategies"))
    refuse({"--trace_file"}, "beside --strategies, which runs several trainings");
  if (training.inspection.check_equivalence > 0)
    refuse({"--strategies", "--num_batches", "--num_warmup_batches", "--display_every"},
           "beside --check_equivalence, which runs its steps in every mode; leave one of them out");
  if (training.inspection.summary)
    refuse({"--plot", "--num_batches", "--num_warmup_batches", "--display_every", "--repetitions",
            "--strategies", "--mfu"},
           "beside --summary, which measures nothing; leave one of them out");
  if (training.inspection.dry_run)
    refuse({"--plot", "--num_batches", "--num_warmup_batches", "--display_every", "--repetitions"},
           "beside --dry_run, which measures nothing; leave one of them out");
}

// The last step that is not timed is traced.
void check_trace(const FlagParser& parser, const BenchFlags& wanted) {
  require<FlagError>(wanted.training.files.trace_file.empty() || wanted.num_warmup_batches > 0,
                     parser.flag("--trace_file").written, " records the last warm-up step, and ",
                     parser.flag("--num_warmup_batches").written, " makes none");
}

std::vector<Mode> modes_of(const FlagParser& parser, const StrategyList& list,
                           const TrainFlags& training) {
  if (training.inspection.check_equivalence > 0) return all_modes(training.trainer.devices);
  if (!list.names.empty())
    return strategy_modes(list, parser.given("--trainer") ? training.kind : "", training);
  const AggregationOptions& aggregation = training.trainer.aggregation;
  return {{training.kind, aggregation.allreduce, aggregation.gradient_repacking}};
}

BenchFlags parse(std::span<const char* const> arguments, const std::string& program) {
  FlagParser parser("Times training on synthetic data. Flags may be spelled with - or _.", program);
  BenchFlags wanted;
  add_flags(parser, wanted);
  const TrainFlagSet set(parser, {.program = program, .reads_files = false, .benchmark = true});
  wanted.help = parse_with_config(parser, arguments);
  if (!wanted.help.empty()) return wanted;
  as_flag(parser.flag("--model").shown_name(), [&] { find_model(wanted.model_name); });
  wanted.model = find_model(wanted.model_name, wanted.image_size,
                            {wanted.batch_norm, wanted.label_smoothing, wanted.sequence_length});
  const StrategyList& list = wanted.strategies;
  wanted.training = set.read(wanted.model.batch_size, list.all || list.automatic);
  add_to_config(wanted.training, wanted.model.optimizer);
  check(parser, wanted.training);
  check_trace(parser, wanted);
  wanted.compares = !list.names.empty();
  // One device, too, so that a sweep over numbers of devices may begin with it.
  wanted.lists_refusals = list.all || wanted.training.inspection.check_equivalence > 0 ||
                          wanted.training.trainer.devices.size() == 1;
  wanted.modes = modes_of(parser, list, wanted.training);
  return wanted;
}

std::int64_t samples_per_step(const TrainFlags& flags) {
  return std::ssize(devices_of_all(flags)) * flags.trainer.batch_size *
         flags.trainer.batches.gradient_accumulation_steps;
}

void print_header(Console& console, const BenchFlags& wanted) {
  const TrainerOptions& options = wanted.training.trainer;
  const int processes = wanted.training.group.processes;
  std::vector<std::string> fields;
  for (const Dataset::Field& field : wanted.model.fields)
    fields.push_back(cat(field.name, " ", name_of(field.dtype), field.shape));
  console.line(cat(
      "model: ", wanted.model.name, " on ", short_names(options.devices),
      processes > 1 ? cat(" of each of ", processes, " processes") : "", ", seed ", options.seed,
      options.precision == Precision::kF32 ? "" : cat(", ", name_of(options.precision))));
  const auto towers = std::ssize(devices_of_all(wanted.training));
  const BatchForm batch{.samples = divide_samples(options.batch_size * towers, towers,
                                                  options.batches.tower_weights)};
  console.line(cat("batch: ", batch.str(), " per device, ", batch.total(), " in all; synthetic ",
                   join(fields), ", one batch again and again"));
}

// The report of --dry_run on a mode: to_json(PlannedStep) and more.
JsonValue plan_json(const ModePlan& plan, const BenchFlags& wanted) {
  JsonValue json = to_json(plan.step);
  json.set("model", wanted.model.name)
      .set("strategy", plan.mode.allreduce)
      .set("global_batch_size", plan.shards.global_batch)
      .set("shards", plan.shards.shards);
  add_k_dependence(json, plan.shards.k_dependent_because);
  json.set("planned_bytes", planned_bytes(plan.memory, plan.held))
      .set("note", note_of_plan(wanted.training, plan.mode.allreduce));
  return json;
}

void print_plan(const ModePlan& plan, const BenchFlags& wanted, Console& console) {
  console.line(cat(wanted.compares ? cat(plan.mode.name(), ": ") : "",
                   without_line_break(shards_text(plan.shards))));
  if (wanted.training.group.processes == 1) return;
  console.line(without_line_break(to_text(plan.step)));
  const std::string note = note_of_plan(wanted.training, plan.mode.allreduce);
  if (!note.empty()) console.line(note);
}

// Prints what each mode needs and moves those that refuse into `refused`. What `auto` chose is kept
// in `training`.
std::vector<Mode> plan(const BenchFlags& wanted, TrainerOptions& training, const Dataset& data,
                       Console& console, std::vector<ModePlan>& refused, OutputFile* json,
                       OutputFile* memory) {
  const std::int64_t available = host_memory();
  std::vector<Mode> modes;
  JsonValue memories = JsonValue::array(), plans = JsonValue::array();
  console.line(cat("memory: this machine has ", byte_text(available)));
  for (const Mode& mode : wanted.modes) {
    ModePlan planned = plan_mode(mode, training, data);
    if (!planned.refusal.empty()) {
      require<FlagError>(wanted.lists_refusals, wanted.compares ? "--strategies: " : "",
                         mode.name(), ": ", planned.refusal);
      refused.push_back(std::move(planned));
      continue;
    }
    if (planned.kept && wanted.training.inspection.check_equivalence == 0) {
      console.line(planned.choice);
      training.aggregation.choice.kept = planned.kept;
    }
    std::vector<std::string> peaks;
    for (const DeviceUse& use : planned.use)
      peaks.push_back(cat(use.device.short_str(), " ", byte_text(use.peak_bytes)));
    console.line(cat("memory: ", mode.name(), " needs ", byte_text(planned.bytes),
                     " with its input; planned peaks: ", join(peaks)));
    if (wanted.training.inspection.dry_run) {
      print_plan(planned, wanted, console);
      plans.push(plan_json(planned, wanted));
    }
    if (memory)
      memories.push(memory_json(planned.memory, planned.held).set("strategy", mode.allreduce));
    // Other hosts have memory of their own.
    if (!wanted.training.inspection.dry_run || wanted.training.group.processes == 1)
      require_memory(planned, available);
    modes.push_back(mode);
  }
  if (memory && !modes.empty())
    memory->write((wanted.compares ? memories : memories.items().front()).str(2) + "\n");
  if (json && wanted.training.inspection.dry_run && !modes.empty())
    json->write((wanted.compares ? plans : plans.items().front()).str(2) + "\n");
  // One device, in a sweep over their number, may have no use for any.
  require<FlagError>(
      !modes.empty() || wanted.training.trainer.devices.size() == 1,
      "no strategy of --strategies can serve this: ", refused.empty() ? "" : refused[0].refusal);
  return modes;
}

BenchedModel benched(const BenchFlags& wanted, const TrainerOptions& training, const Dataset& data,
                     std::optional<double> peak) {
  return {wanted.model.name,
          devices_of_all(wanted.training),
          training.batch_size,
          training.batches.tower_weights,
          settings_of(training),
          wanted.label_smoothing,
          wanted.model.batch_norm,
          data.tokens(),
          peak,
          hosts_of(training.session.processes.get())};
}

void report(const BenchFlags& wanted, std::span<const BenchResult> results,
            std::span<const ModePlan> refused, Console& console, OutputFile* json,
            OutputFile* plot) {
  JsonValue list = JsonValue::array();
  for (const BenchResult& result : results) list.push(to_json(result));
  if (wanted.compares) console.line("\n" + bench_table(results, refused));
  if (json) json->write((wanted.compares ? list : list.items().front()).str(2) + "\n");
  if (plot && !results.empty()) plot->write(bench_plot(results[0].model, results));
}

std::vector<BenchResult> measure(const BenchFlags& wanted, const TrainerOptions& training,
                                 std::span<const Mode> modes, const Dataset& data,
                                 Console& console) {
  const auto towers = static_cast<int>(devices_of_all(wanted.training).size());
  ModeBenchOptions bench{.steps = wanted.num_batches,
                         .timer = {.warmup = wanted.num_warmup_batches,
                                   .display_every = wanted.compares ? 0 : wanted.display_every,
                                   .console = &console}};
  if (wanted.compares) {
    bench.rounds = wanted.repetitions;
    bench.on_run = [&](int round, const ModeRuns& runs) {
      console.line(cat("round ", round, " of ", wanted.repetitions, ": ", runs.mode.name(), ": ",
                       rounded(runs.speeds.back(), 2), " images/sec"));
    };
  }
  std::optional<double> peak;
  if (wanted.training.inspection.mfu) peak = measured_peak(wanted.training);
  const std::vector<ModeRuns> runs = bench_modes(modes, training, data, bench);
  const std::vector<BenchResult> results =
      bench_results(benched(wanted, training, data, peak), runs, 0);
  if (!wanted.compares) {
    const double total =
        static_cast<double>(wanted.num_batches * samples_per_step(wanted.training)) /
        runs[0].total_seconds;
    console.line(total_lines(total));
    console.line(cat("images/sec per device: ", rounded(total / towers, 2)));
    if (const auto tokens = results[0].tokens_per_second())
      console.line(cat("tokens/sec: ", rounded(*tokens, 0)));
    if (results[0].mfu)
      console.line(cat("share of the measured peak: ", rounded(100 * *results[0].mfu, 1), " %"));
    console.line(cat("params_hash ", runs[0].params_hash, ", state_hash ", runs[0].state_hash));
  }
  return results;
}

int train_bench(const BenchFlags& wanted) {
  OutputFiles outputs(local_file_system());
  outputs.reserve_input(cat("--links=", wanted.training.automatic.links),
                        wanted.training.automatic.links);
  OutputFile* const json = outputs.open("--json", wanted.training.files.json);
  OutputFile* const plot = outputs.open("--plot", wanted.plot);
  OutputFile* const memory = outputs.open("--memory_report", wanted.training.files.memory_report);
  OutputFile* const trace =
      outputs.open("--trace_file", speaks(wanted.training) ? wanted.training.files.trace_file : "");
  AlgorithmsFile algorithms(local_file_system(), outputs, wanted.training.files.algorithms,
                            wanted.training.trainer.session.deterministic);
  // Whoever asked for a file on stdout gets nothing else there.
  Console console(!speaks(wanted.training) ? nullptr : outputs.on_stdout() ? stderr : stdout);
  const TrainFlags& flags = wanted.training;
  if (flags.plans()) keep_freed_memory();
  TrainerOptions training = trainer_options(flags, wanted.model.model, wanted.model.optimizer);
  const std::unique_ptr<Dataset> data = synthetic_data(wanted.model.fields, wanted.model.classes,
                                                       samples_per_step(flags), training.seed);
  print_header(console, wanted);
  if (flags.inspection.summary) {
    inspect(flags, training, *data, nullptr, console, json, memory);
    outputs.finish();
    return 0;
  }
  std::vector<ModePlan> refused;
  const std::vector<Mode> modes = plan(wanted, training, *data, console, refused, json, memory);
  if (flags.inspection.check_equivalence > 0) {
    const int status =
        report_equivalence(training, *data, flags.inspection.check_equivalence, console, json);
    algorithms.write();
    outputs.finish();
    return status;
  }
  if (flags.inspection.dry_run) {
    outputs.finish();
    return 0;
  }
  CommunicationTime communication;
  if (!flags.files.trace_file.empty()) {
    training.traced = {wanted.num_warmup_batches, wanted.num_warmup_batches};
    training.on_trace = [&](const Trace& made) {
      const TraceFile file = trace_of_all(training.session.processes.get(), made);
      communication = file.communication;
      if (trace) trace->write(file.text);
    };
  }
  std::vector<BenchResult> results;
  if (!modes.empty()) results = measure(wanted, training, modes, *data, console);
  for (BenchResult& result : results)
    result.communication_hidden_share = communication.hidden_share();
  algorithms.write();
  report(wanted, results, refused, console, json, plot);
  outputs.finish();
  const std::string diverged = divergence(results);
  require<Error>(diverged.empty(), "training diverged: ", diverged,
                 "; a smaller --learning_rate may help");
  const std::string differing = disagreement(results);
  if (differing.empty()) return 0;
  if (!repeats(training)) {
    log_info(differing, " ended with other bits, as on GPUs they may without --deterministic");
    return 0;
  }
  log_error("canonical strategies ended with other bits: ", differing);
  return 1;
}

// One of several processes, or the only one.
int run(const BenchFlags& wanted) {
  if (wanted.training.run.print_config) {
    print_config(wanted.training.config);
    return 0;
  }
  const std::shared_ptr<Processes> processes = join_processes(wanted.training);
  return run_process(
      processes.get(),
      [&] {
        BenchFlags own = wanted;
        own.training = processes ? of_process(wanted.training, processes)
                                 : of_planned_process(wanted.training);
        if (!speaks(own.training)) own.plot.clear();
        return train_bench(own);
      },
      wanted.training.group.stall_exit_code);
}

int main(int argc, char** argv) { return run_program(argc, argv, parse, run); }
