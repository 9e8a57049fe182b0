#include "belfry/trainers/program/train.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <future>
#include <optional>
#include <thread>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/base/threads.h"
#include "belfry/towers/balance.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_checks.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/core/training_sizes.h"
#include "belfry/trainers/modes/equivalence.h"
#include "belfry/trainers/program/algorithms_file.h"
#include "belfry/trainers/program/configuration.h"
#include "belfry/trainers/program/ended_run.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/program/inspect.h"
#include "belfry/trainers/program/make_report.h"
#include "belfry/trainers/program/memory_report.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/program/program_callbacks.h"
#include "belfry/trainers/program/program_processes.h"
#include "belfry/trainers/program/report_files.h"
#include "belfry/trainers/program/step_file.h"
#include "belfry/trainers/program/untrained_data.h"
#include "belfry/trainers/runs/replay_check.h"
#include "belfry/trainers/runs/stall_watch.h"
#include "belfry/trainers/util/clock.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/error_file.h"

namespace belfry {
namespace {

void check_recipe(const Recipe& recipe) {
  require(static_cast<bool>(recipe.model), "the recipe has no model");
  require(static_cast<bool>(recipe.data), "the recipe has no data");
  require(recipe.optimizer || !recipe.losses.empty(), "the recipe has no optimizer; e.g. sgd(0.1)");
  require(!recipe.optimizer || recipe.losses.empty(),
          "the recipe has losses, each with its optimizer, and an optimizer besides; leave that "
          "out");
  check_losses(recipe.losses);
  require(recipe.epochs >= 1, "the recipe has ", recipe.epochs, " epochs; it takes at least 1");
  require(recipe.batch_size >= 0, "the recipe has a batch size of ", recipe.batch_size,
          "; it is at least 1, or 0 for what global_batch_size gives");
  require(recipe.global_batch_size >= 1, "the recipe has a global batch size of ",
          recipe.global_batch_size, "; it is at least 1");
  for (const NamedData& set : recipe.validation)
    require(static_cast<bool>(set.data), "the validation set '", set.name,
            "' of the recipe has no data");
  check_callbacks(recipe.callbacks, "the recipe's callbacks");
}

bool reads_files(const Recipe& recipe) {
  return recipe.data.reads_files() ||
         std::ranges::any_of(recipe.validation,
                             [](const NamedData& set) { return set.data.reads_files(); });
}

// Trains. An error names its origin and what was saved before it. Returns an error that is reported
// in addition to results: the run diverged, or it trained to its end and then could not write
// something.
std::exception_ptr train_or_tell(Trainer& trainer, const TrainingRun& run) try {
  trainer.train();
  return nullptr;
} catch (const std::exception& error) {
  // Other processes know of no error here if this one has ended as they have.
  const bool is_alone = !trainer.built().processes();
  const bool is_trained =
      trainer.loop().is_complete() && (is_alone || dynamic_cast<const IoError*>(&error) != nullptr);
  // All processes see one loss, and end alike.
  const bool is_diverged = is_alone ? bool(find_divergence(trainer.built(), trainer.record()))
                                    : trainer.record().watch().losses().not_finite_since() &&
                                          dynamic_cast<const Diverged*>(&error) != nullptr;
  const bool is_reported = trainer.session().intact() && (is_trained || is_diverged);
  try {
    ErrorFields known = fields_of(error);
    known.kept = run.saved();
    if (error_text(known) == error.what()) throw;
    std::throw_with_nested(Error(std::move(known)));
  } catch (...) {
    if (!is_reported) throw;
    return std::current_exception();
  }
}

// One call of a training program.
class TrainingProgram {
 public:
  TrainingProgram(std::string name, TrainFlags flags, const Recipe& recipe)
      : name_(std::move(name)),
        flags_(std::move(flags)),
        recipe_(recipe),
        directory_(take_run_directory(flags_)),
        report_files_(flags_),
        algorithms_(local_file_system(), report_files_.files, flags_.files.algorithms,
                    flags_.trainer.session.deterministic),
        console_(!speaks(flags_)                   ? nullptr
                 : report_files_.files.on_stdout() ? stderr
                                                   : stdout),
        run_(flags_, console_, std::move(directory_)),
        options_(trainer_options(flags_, recipe.model, recipe.optimizer, recipe.losses)) {}

  int run() {
    watch_.emplace(setup_, stall_options());
    if (flags_.inspection.mfu && !flags_.plans() && flags_.inspection.check_equivalence == 0)
      peak_ = measured_peak(flags_);
    prepare_options();
    const RunDirs dirs{.data_dir = flags_.files.data_dir, .bad_records = flags_.files.bad_records};
    set_up("the data function of the recipe");
    naming_part("the data function of the recipe", [&] {
      if (!options_.evaluates_only) train_data_ = recipe_.data(dirs, true);
      if (evaluates()) make_test_data(dirs);
    });
    if (options_.evaluates_only) train_nothing();
    require(train_data_ != nullptr, "the recipe's data source gave no training data");
    for (const Dataset* data : all_data())
      if (data) report_files_.reserve_data(flags_, *data);
    int status = 0;
    if (flags_.plans()) {
      end_setup();
      keep_freed_memory();
      inspect(flags_, options_, *train_data_, test_data_.get(), console_, report_files_.json,
              report_files_.memory);
    } else {
      read_sizes();
      status = flags_.inspection.check_equivalence > 0 ? compare()
               : report_files_.step                    ? write_step()
                                                       : train();
    }
    report_files_.files.finish();
    return status;
  }

 private:
  bool evaluates() const { return !flags_.evaluation.never(); }

  void make_test_data(const RunDirs& dirs) {
    test_data_ = recipe_.data(dirs, false);
    for (const NamedData& set : recipe_.validation) {
      validation_data_.push_back(set.data(dirs, false));
      require(validation_data_.back() != nullptr, "the data source of the validation set '",
              set.name, "' gave no data");
      options_.validation.push_back({set.name, validation_data_.back().get()});
    }
  }

  // The recipe's training data may not be there. There are two steps of others, so that a run may
  // have ended within an epoch.
  void train_nothing() {
    const Dataset* const tested = test_data_                 ? test_data_.get()
                                  : validation_data_.empty() ? nullptr
                                                             : validation_data_[0].get();
    require<FlagError>(tested != nullptr,
                       "--evaluate_only: there are no data to evaluate; give the recipe test data");
    train_data_ = std::make_unique<UntrainedData>(
        *tested, 2 * samples_of_step(options_, processes_of(options_)));
  }

  std::vector<const Dataset*> all_data() const {
    std::vector<const Dataset*> all{train_data_.get(), test_data_.get()};
    for (const std::unique_ptr<Dataset>& data : validation_data_) all.push_back(data.get());
    return all;
  }

  // `what` is under way; the watch warns of it, and ends the program, as in a step.
  void set_up(const char* what) {
    setup_.enter({.what = TrainingActivity::What::kSetup, .hook = what, .step = 0});
  }
  // From now on others show that the program makes progress.
  void end_setup() { setup_.enter({.what = TrainingActivity::What::kEnded}); }

  // Asking for their size loads the data.
  void read_sizes() {
    set_up("reading the data");
    naming_part("size() of a data set of the recipe", [&] {
      for (const Dataset* data : all_data())
        if (data) data->size();
    });
    end_setup();
  }

  void prepare_options() {
    SessionOptions& session = options_.session;
    const bool prints = session.log_device_placement;
    session.placement_sink = [this, prints](std::string_view text) {
      if (prints) console_.line(without_line_break(text));
      placement_ += text;
    };
    session.log_device_placement = prints || !flags_.run.directory.empty();
    options_.say = [this](std::string_view line) { console_.line(line); };
    replay_ = add_callbacks(options_, name_, flags_, recipe_, report_files_, console_, run_, peak_);
    options_.traced = flags_.run.traced;
    if (options_.traced || !flags_.files.trace_file.empty())
      options_.on_trace = [this](const Trace& trace) { keep(trace); };
    run_.start().adopt(options_);
  }

  // All processes call it after the same step, and one of them writes.
  void keep(const Trace& trace) {
    const TraceFile file = trace_of_all(options_.session.processes.get(), trace);
    communication_ += file.communication;
    if (report_files_.trace) report_files_.trace->write(file.text);
    if (options_.traced && speaks(flags_)) run_.write_trace(trainer_->steps() + 1, file.text);
  }

  int compare() {
    const int status = report_equivalence(
        options_, *train_data_, flags_.inspection.check_equivalence, console_, report_files_.json);
    algorithms_.write();
    return status;
  }

  int write_step() {
    set_up("computing a step");
    report_files_.step->write(
        step_file(options_, *train_data_, [&](Session& session) { run_.start().load(session); }));
    console_.line(cat("wrote a step to ", flags_.files.step));
    return 0;
  }

  // When training began, and its state then.
  struct Start {
    double began = seconds_now();
    std::int64_t rss_before_plan = resident_bytes();
    double startup_seconds = 0;  // from the start of the process
  };

  int train() {
    options_.session.awaits_restore = run_.start().found().has_value();
    start_ = build();
    set_up("resuming the run");
    run_.start().restore(*trainer_);
    const std::optional<JsonValue> results = run_.finished(*trainer_);
    if (rank_0_says(results.has_value())) return results ? repeat(*results) : 0;
    watch_.emplace(trainer_->loop().activity(), stall_options());
    trainer_->loop().check_callbacks();
    run_.begin(*trainer_, placement_);
    has_begun_ = true;
    try {
      train_and_report();
    } catch (const std::exception& error) {
      end_failed_run(error, exit_code_of(error, flags_));
      throw;
    } catch (...) {
      end_failed_run(Error("something was thrown that is no std::exception"), 1);
      throw;
    }
    const int signal = run_.stop().signal();
    if (replay_ && signal == 0) console_.line(replay_->outcome());
    const int status = signal == 0 ? 0 : exit_code_of(signal);
    if (signal != 0) console_.line(why_it_stopped(flags_, *trainer_, run_));
    end_run(status);
    return status;
  }

  Start build() {
    Start start;
    set_up("building the model");
    trainer_ = std::make_unique<Trainer>(find_trainer(flags_.kind), options_, *train_data_,
                                         test_data_.get());
    start.startup_seconds = seconds_since_start();
    print_header(console_, name_, flags_, *trainer_, *train_data_, test_data_.get());
    if (flags_.trainer.session.log_device_placement)
      console_.line(balance_report(trainer_->graph(), options_.devices).str());
    return start;
  }

  // Reports the run, and then throws if it diverged.
  void train_and_report() {
    const std::exception_ptr error = train_or_tell(*trainer_, run_);
    report_ = with_times(make_report(name_, flags_, recipe_, *trainer_, peak_));
    report_results();
    if (error) std::rethrow_exception(error);
    if (report_->losses.divergence) throw Diverged(report_->losses.divergence);
    require<CorruptionError>(
        report_->variables.replicas_equal.value_or(true),
        "the copies of the model's variables are not equal at the end, as logged above; a "
        "device or its memory may be faulty, or code of yours has written to a copy");
  }

  StallOptions stall_options() {
    StallOptions options = belfry::stall_options(flags_);
    if (const double most = flags_.run.max_seconds; most > 0)
      options.deadline =
          Activity::Clock::now() + std::chrono::duration_cast<Activity::Clock::duration>(
                                       std::chrono::duration<double>(most - seconds_since_start()));
    options.end_run = [this](const StallError& error, int request) {
      end_stalled_run(error, request);
    };
    return options;
  }

  // The thread that hangs cannot be ended, so the process is. What hangs may be the disk, so a
  // separate thread writes the summary, within a limited time. A run that had not begun has no
  // summary.
  [[noreturn]] void end_stalled_run(const StallError& error, int request) {
    const int code = request != 0 ? exit_code_of(request) : stall_code(flags_);
    tell_others_of_stall(flags_, error);
    if (!has_begun_) end_stalled_process(flags_, error, code, "");
    std::string saved;
    try {
      std::promise<std::string> told;
      std::future<std::string> is_told = told.get_future();
      std::jthread writer =
          start_thread({.what = "the summary of a run that hangs", .remedy = "use fewer threads"},
                       [&] { told.set_value(write_stalled_summary(error, code)); });
      if (is_told.wait_for(flags_.group.watch.patience) == std::future_status::ready)
        saved = is_told.get();
      end_stalled_process(flags_, error, code, saved);
    } catch (const Error&) {  // there is no thread for it
      end_stalled_process(flags_, error, code, saved);
    }
  }

  // Returns what was saved last.
  std::string write_stalled_summary(const StallError& error, int code) {
    report_ = with_times(report_without_values(name_, flags_, recipe_, *trainer_, peak_));
    end_failed_run(error, code);
    std::fflush(stdout);
    return run_.saved();
  }

  Report with_times(Report report) {
    report.progress.startup_seconds = start_.startup_seconds;
    report.progress.seconds = seconds_now() - start_.began;
    report.progress.speed.communication_hidden_share = communication_.hidden_share();
    report.restart = run_.restart();
    report.memory = memory_use(*trainer_, start_.rss_before_plan, flags_.copies_of_state());
    return report;
  }

  // A step that failed may have left variables half written, and other processes waiting.
  Report report_of_failed_run() {
    const bool can_read = trainer_->session().intact() && !options_.session.processes;
    return can_read ? make_report(name_, flags_, recipe_, *trainer_, peak_)
                    : report_without_values(name_, flags_, recipe_, *trainer_, peak_);
  }

  void end_failed_run(const std::exception& error, int code) {
    try {
      if (!report_) report_ = with_times(report_of_failed_run());
      run_.end(*trainer_, to_json(*report_),
               {.exit_code = code, .error = &error, .is_trained = false});
    } catch (const std::exception& other) {
      log_warning(other.what());
    }
  }

  // If files could not be written, the program ends with 1 (finish()). A failing standard output
  // does so only if nothing else is amiss (run_program()). The run records the same code.
  void end_run(int status) {
    const std::string files = report_files_.files.failures();
    const IoError lost(files.empty() ? standard_output_failure() : files);
    const bool is_lost = *lost.what() != '\0';
    const int code = !files.empty() ? 1 : is_lost ? std::max(status, 1) : status;
    run_.end(*trainer_, to_json(*report_), {.exit_code = code, .error = is_lost ? &lost : nullptr});
  }

  // Only rank 0 has the run directory, so it answers for all.
  bool rank_0_says(bool own) const {
    Processes* const processes = options_.session.processes.get();
    return processes ? processes->gather(own ? "yes" : "")[0] == "yes" : own;
  }

  void report_results() {
    if (report_files_.trace && !report_files_.trace->asked_to_write())
      warn_of_no_trace(flags_, *trainer_);
    if (options_.traced && speaks(flags_)) warn_of_no_traces(*options_.traced, *trainer_);
    algorithms_.write();
    if (!replay_) console_.line(to_table(*report_));
    if (report_files_.json) report_files_.json->write(to_json(*report_).str(2) + "\n");
    if (report_files_.memory)
      write_memory_report(trainer_->session(), flags_.copies_of_state(), *report_files_.memory);
  }

  // Prints and writes the results of a run that had ended before.
  int repeat(const JsonValue& results) {
    repeat_results(results, flags_, *trainer_, console_);
    for (const std::shared_ptr<Callback>& callback : options_.callbacks)
      callback->on_ended_run(*trainer_);
    if (report_files_.json) report_files_.json->write(results.str(2) + "\n");
    return 0;
  }

  std::string name_;
  const TrainFlags flags_;
  const Recipe& recipe_;
  std::unique_ptr<RunDirectory> directory_;  // until run_ has it; reports may lie in it
  ReportFiles report_files_;
  AlgorithmsFile algorithms_;
  Console console_;  // a program whose results go to stdout prints nothing else there
  TrainingRun run_;
  TrainerOptions options_;
  std::shared_ptr<const ReplayCheck> replay_;  // with --replay
  std::string placement_;
  std::unique_ptr<Dataset> train_data_, test_data_;
  std::vector<std::unique_ptr<Dataset>> validation_data_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<Report> report_;
  std::optional<double> peak_;       // with --mfu
  CommunicationTime communication_;  // in all traced steps
  TrainingActivity setup_;           // before there is a trainer
  Start start_;
  std::atomic<bool> has_begun_{false};  // so that the run directory is this run's
  std::optional<StallWatch> watch_;     // the last member: it looks at the others
};

}  // namespace

int train(int argc, char** argv, const Recipe& recipe) {
  const auto parse = [&](std::span<const char* const> arguments, const std::string& program) {
    check_recipe(recipe);
    TrainFlags flags = parse_flags(
        arguments, {.program = program,
                    .batch_size = std::max(recipe.batch_size, 1),
                    .global_batch_size = recipe.batch_size > 0 ? 0 : recipe.global_batch_size,
                    .epochs = recipe.epochs,
                    .reads_files = reads_files(recipe),
                    .own = recipe.flags});
    if (flags.help.empty() && recipe.optimizer) add_to_config(flags, recipe.optimizer);
    return flags;
  };
  const auto run = [&](TrainFlags flags) {
    take_from_run(flags);
    if (flags.run.print_config) {
      print_config(flags.config);
      return 0;
    }
    const std::string name = program_name(argc, argv);
    const std::shared_ptr<Processes> processes = join_processes(flags);
    return run_process(
        processes.get(),
        [&] {
          return TrainingProgram(
                     name, processes ? flags_in_group(flags, processes) : of_planned_process(flags),
                     recipe)
              .run();
        },
        [&] { return stall_code(flags); });
  };
  return run_program(argc, argv, parse, run);
}

}  // namespace belfry
