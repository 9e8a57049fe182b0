// Measures how fast models train on synthetic data, by each strategy, and prints what
// tf_cnn_benchmarks prints. Try: train_bench --model=resnet20 --devices=cpu:4 --strategies=all
// --plot=resnet20.svg
#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>

#include "belfry/belfry.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/callbacks/step_timer.h"
#include "belfry/trainers/commands/plot_file.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/modes/equivalence.h"
#include "belfry/trainers/modes/modes.h"
#include "belfry/trainers/program/algorithms_file.h"
#include "belfry/trainers/program/configuration.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/program/inspect.h"
#include "belfry/trainers/program/make_report.h"
#include "belfry/trainers/program/memory_report.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/program/program_processes.h"
#include "belfry/trainers/program/report_files.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/hash.h"
#include "belfry/trainers/util/output_file.h"
#include "belfry/trainers/util/statistics.h"
#include "bench/bench_report.h"
#include "bench/mode_bench.h"
#include "bench/strategy_list.h"
using namespace belfry;

struct BenchFlags {
  std::string model_name = "mnist";
  int image_size = 0;  // 0: the default of the model
  models::GptSize gpt;
  std::string preset;  // of gpt
  BatchNormOver batch_norm = BatchNormOver::kTower;
  double label_smoothing = 0;
  ModelSpec model;
  StrategyList strategies;  // --strategies
  TrainFlags training;
  std::vector<Mode> modes;
  bool compares = false;        // --strategies is given
  bool lists_refusals = false;  // modes that cannot serve are listed, and are no error
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
  parser.add_parsed(
      "--batch_norm", wanted.batch_norm, find_batch_norm_over, "NAME",
      "tower|synchronised: statistics of each device's batch, or of all devices' together; with "
      "the latter the bits do not depend on the number of devices [tower]");
  parser.add_number(
      "--label_smoothing", wanted.label_smoothing, "a number from 0 to 1",
      [](double x) { return x >= 0 && x <= 1; }, "X",
      "share of the target that is spread evenly over all classes [0]");
  parser.add("--num_batches", wanted.num_batches, 1, kMost, "N", "timed steps [100]");
  parser.add("--num_warmup_batches", wanted.num_warmup_batches, 0, kMost, "N",
             "steps before those [10]");
  parser.add("--display_every", wanted.display_every, 1, kMost, "N",
             "print a line after the first timed step and every N steps [10]");
  parser.add_parsed(
      "--strategies", wanted.strategies,
      [](const WrittenFlag& flag) { return parse_strategies(flag.value); }, "LIST",
      "compare strategies of --allreduce: all, or names separated by commas, auto among "
      "them; ratios are to the first, with all to collective [none]");
  parser.add("--repetitions", wanted.repetitions, 1, 1000, "N",
             "with --strategies, rounds over all of them [3]");
  parser.add(
      {.name = "plot",
       .unit = "FILE",
       .text = "with `strategies`, draw a bar chart there, .svg, .png or .pdf, by gnuplot",
       .otherwise = "none",
       .scope = Scope::kThisCall},
      [&](const WrittenFlag& flag) { wanted.plot = flag.value; }, nullptr);
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

// The last untimed step is traced.
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

// A configuration of another model has no flags of gpt.
void leave_out_of_config(TrainFlags& training, const std::vector<OwnOption>& of_gpt,
                         const ModelOptions& options) {
  if (options.gpt) return;
  JsonValue kept = JsonValue::object();
  for (const auto& [name, value] : training.config.members()) {
    const bool is_of_gpt = std::ranges::find(of_gpt, name, &OwnOption::name) != of_gpt.end();
    if (!is_of_gpt || (name == "sequence_length" && options.sequence_length > 0))
      kept.set(name, value);
  }
  training.config = std::move(kept);
}

BenchFlags parse(std::span<const char* const> arguments, const std::string& program) {
  FlagParser parser("Times training on synthetic data. Flags may be spelled with - or _.", program);
  BenchFlags wanted;
  add_flags(parser, wanted);
  const std::vector<OwnOption> of_gpt = models::gpt_flags(wanted.gpt, wanted.preset);
  const TrainFlagSet set(
      parser, {.program = program, .reads_files = false, .benchmark = true, .own = of_gpt});
  wanted.help = parse_with_config(parser, arguments);
  if (!wanted.help.empty()) return wanted;
  as_flag(parser.flag("--model").shown_name(), [&] { find_model(wanted.model_name); });
  ModelOptions options{wanted.batch_norm, wanted.label_smoothing};
  if (wanted.model_name == "gpt")
    options.gpt = wanted.gpt;
  else if (parser.given("--sequence_length"))
    options.sequence_length = static_cast<int>(wanted.gpt.sequence_length);
  for (const OwnOption& flag : of_gpt)
    require<FlagError>(
        options.gpt || flag.name == "sequence_length" || !parser.given("--" + flag.name),
        parser.flag("--" + flag.name).written, " is for --model=gpt, not ", wanted.model_name);
  wanted.model = find_model(wanted.model_name, wanted.image_size, options);
  const StrategyList& list = wanted.strategies;
  wanted.training = set.read(wanted.model.batch_size, list.all || list.automatic);
  leave_out_of_config(wanted.training, of_gpt, options);
  add_to_config(wanted.training, wanted.model.optimizer);
  check(parser, wanted.training);
  check_trace(parser, wanted);
  wanted.compares = !list.names.empty();
  // With one device nothing is an error, so a sweep over numbers of devices may begin with it.
  wanted.lists_refusals = list.all || wanted.training.inspection.check_equivalence > 0 ||
                          wanted.training.trainer.devices.size() == 1;
  wanted.modes = modes_of(parser, list, wanted.training);
  return wanted;
}

std::int64_t samples_per_step(const TrainFlags& flags) {
  return std::ssize(devices_of_all(flags.trainer)) * flags.trainer.batch_size *
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
  const auto towers = std::ssize(devices_of_all(wanted.training.trainer));
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

BenchedModel benched(const BenchFlags& wanted, const TrainerOptions& training, const Dataset& data,
                     std::optional<double> peak) {
  return {wanted.model.name,
          devices_of_all(wanted.training.trainer),
          training.batch_size,
          training.batches.tower_weights,
          settings_of(training),
          wanted.label_smoothing,
          wanted.model.batch_norm,
          data.tokens(),
          peak,
          hosts_of(training.session.processes.get())};
}

// Prints the speed of one mode.
void print_speed(const BenchFlags& wanted, const ModeRuns& runs, const BenchResult& result,
                 Console& console) {
  const auto steps = static_cast<double>(wanted.num_batches * samples_per_step(wanted.training));
  const auto towers = static_cast<double>(devices_of_all(wanted.training.trainer).size());
  const double total = steps / runs.total_seconds;
  console.line(total_lines(total));
  console.line(cat("images/sec per device: ", rounded(total / towers, 2)));
  if (const auto tokens = result.tokens_per_second())
    console.line(cat("tokens/sec: ", rounded(*tokens, 0)));
  if (result.mfu)
    console.line(cat("share of the measured peak: ", rounded(100 * *result.mfu, 1), " %"));
  console.line(cat("params_hash ", runs.params_hash, ", state_hash ", runs.state_hash));
}

// The exit code for these results.
int verdict(std::span<const BenchResult> results, const TrainerOptions& training) {
  const std::string diverged = divergence(results);
  require<Error>(diverged.empty(), "training diverged: ", diverged);
  const std::string differing = disagreement(results);
  if (differing.empty()) return 0;
  if (!repeats(training)) {
    log_info(differing, " ended with other bits, as on GPUs they may without --deterministic");
    return 0;
  }
  log_error("canonical strategies ended with other bits: ", differing);
  return 1;
}

// Runs as one of several processes, or alone.
class TrainBench {
 public:
  explicit TrainBench(const BenchFlags& wanted)
      : wanted_(wanted),
        files_(flags_),
        plot_(wanted.plot.empty()
                  ? nullptr
                  : std::make_unique<PlotFile>(files_.files, "--plot", wanted.plot)),
        algorithms_(local_file_system(), files_.files, flags_.files.algorithms,
                    flags_.trainer.session.deterministic),
        console_(!speaks(flags_)            ? nullptr
                 : files_.files.on_stdout() ? stderr
                                            : stdout),
        training_(trainer_options(flags_, wanted.model.model, wanted.model.optimizer)),
        data_(synthetic_data(wanted.model.fields, wanted.model.classes, samples_per_step(flags_),
                             training_.seed,
                             wanted.model.name == "gpt" ? ClassLaw::kZipf : ClassLaw::kUniform)) {}

  // Returns the exit code.
  int run() {
    const InspectionFlags& asked = flags_.inspection;
    if (flags_.plans()) keep_freed_memory();
    print_header(console_, wanted_);
    int status = 0;
    if (asked.summary) {
      inspect(flags_, training_, *data_, nullptr, console_, files_.json, files_.memory);
    } else {
      plan();
      if (asked.check_equivalence > 0)
        status = compare();
      else if (!asked.dry_run)
        measure_and_report();
    }
    files_.files.finish();
    return results_.empty() ? status : verdict(results_, training_);
  }

 private:
  // Prints the needs of each mode, and keeps the modes that can serve.
  void plan() {
    console_.line(cat("memory: this machine has ", byte_text(available_)));
    for (const Mode& mode : wanted_.modes) plan(mode);
    if (files_.memory && !modes_.empty()) write(*files_.memory, memories_);
    if (files_.json && flags_.inspection.dry_run && !modes_.empty()) write(*files_.json, plans_);
    // With one device, in a sweep over numbers of devices, there may be no mode.
    require<FlagError>(!modes_.empty() || flags_.trainer.devices.size() == 1,
                       "no strategy of --strategies can serve this: ",
                       refused_.empty() ? "" : refused_[0].refusal);
  }

  void plan(const Mode& mode) {
    ModePlan planned = plan_mode(mode, training_, *data_);
    if (!planned.refusal.empty()) {
      require<FlagError>(wanted_.lists_refusals, wanted_.compares ? "--strategies: " : "",
                         mode.name(), ": ", planned.refusal);
      refused_.push_back(std::move(planned));
      return;
    }
    if (!planned.choice.empty()) console_.line(planned.choice);
    std::vector<std::string> peaks;
    for (const DeviceUse& use : planned.use)
      peaks.push_back(cat(use.device.short_str(), " ", byte_text(use.peak_bytes)));
    console_.line(cat("memory: ", mode.name(), " needs ", byte_text(planned.bytes),
                      " with its input; planned peaks: ", join(peaks)));
    if (flags_.inspection.dry_run) {
      print_plan(planned, wanted_, console_);
      plans_.push(plan_json(planned, wanted_));
    }
    if (files_.memory)
      memories_.push(memory_json(planned.memory, planned.held).set("strategy", mode.allreduce));
    // Other hosts have memory of their own.
    if (!flags_.inspection.dry_run || flags_.group.processes == 1)
      require_memory(planned, available_);
    modes_.push_back(mode);
  }

  int compare() {
    const int status = report_equivalence(training_, *data_, flags_.inspection.check_equivalence,
                                          console_, files_.json);
    algorithms_.write();
    return status;
  }

  void measure_and_report() {
    measure();
    algorithms_.write();
    report();
  }

  void measure() {
    if (!flags_.files.trace_file.empty()) {
      training_.traced = {wanted_.num_warmup_batches, wanted_.num_warmup_batches};
      training_.on_trace = [this](const Trace& trace) { keep(trace); };
    }
    if (modes_.empty()) return;
    std::optional<double> peak;
    if (flags_.inspection.mfu) peak = measured_peak(flags_);
    const std::vector<ModeRuns> runs = bench_modes(modes_, training_, *data_, bench_options());
    results_ = bench_results(benched(wanted_, training_, *data_, peak), runs, 0);
    if (!wanted_.compares) print_speed(wanted_, runs[0], results_[0], console_);
    for (BenchResult& result : results_)
      result.communication_hidden_share = communication_.hidden_share();
  }

  ModeBenchOptions bench_options() {
    ModeBenchOptions bench{.steps = wanted_.num_batches,
                           .timer = {.warmup = wanted_.num_warmup_batches,
                                     .display_every = wanted_.compares ? 0 : wanted_.display_every,
                                     .console = &console_},
                           .stall = stall_options(flags_)};
    bench.stall.end_run = [this](const StallError& error, int) {
      tell_others_of_stall(flags_, error);
      end_stalled_process(flags_, error, flags_.group.stall_exit_code, "");
    };
    if (!wanted_.compares) return bench;
    bench.rounds = wanted_.repetitions;
    bench.on_run = [this](int round, const ModeRuns& runs) {
      console_.line(cat("round ", round, " of ", wanted_.repetitions, ": ", runs.mode.name(), ": ",
                        rounded(runs.speeds.back(), 2), " images/sec"));
    };
    return bench;
  }

  void keep(const Trace& trace) {
    const TraceFile file = trace_of_all(training_.session.processes.get(), trace);
    communication_ = file.communication;
    if (files_.trace) files_.trace->write(file.text);
  }

  void report() {
    JsonValue list = JsonValue::array();
    for (const BenchResult& result : results_) list.push(to_json(result));
    if (wanted_.compares) console_.line("\n" + bench_table(results_, refused_));
    if (files_.json) write(*files_.json, list);
    if (plot_ && !results_.empty())
      plot_->draw(bench_plot(results_[0].model, results_), 800, 100 + 40 * std::ssize(results_));
  }

  // Writes a list if modes are compared, else its only item.
  void write(OutputFile& file, const JsonValue& list) const {
    file.write((wanted_.compares ? list : list.items().front()).str(2) + "\n");
  }

  const BenchFlags& wanted_;
  const TrainFlags& flags_ = wanted_.training;
  ReportFiles files_;
  const std::unique_ptr<PlotFile> plot_;
  AlgorithmsFile algorithms_;
  Console console_;  // if a file goes to stdout, nothing else is printed there
  TrainerOptions training_;
  std::unique_ptr<Dataset> data_;
  const std::int64_t available_ = host_memory();  // bytes
  std::vector<Mode> modes_;                       // modes that can serve
  std::vector<ModePlan> refused_;
  JsonValue plans_ = JsonValue::array(), memories_ = JsonValue::array();  // by mode
  std::vector<BenchResult> results_;
  CommunicationTime communication_;  // in the traced step
};

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
        own.training = processes ? flags_in_group(wanted.training, processes)
                                 : of_planned_process(wanted.training);
        if (!speaks(own.training)) own.plot.clear();
        return TrainBench(own).run();
      },
      [&] { return stall_code(wanted.training); });
}

int main(int argc, char** argv) { return run_program(argc, argv, parse, run); }
