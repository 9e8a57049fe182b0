#include "belfry/trainers/program/train.h"

#include <cstdio>
#include <exception>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/log.h"
#include "belfry/towers/balance.h"
#include "belfry/trainers/bench/equivalence.h"
#include "belfry/trainers/bench/modes.h"
#include "belfry/trainers/core/save_checkpoint.h"
#include "belfry/trainers/core/trainer_checks_impl.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/prefetch.h"
#include "belfry/trainers/program/algorithms_file.h"
#include "belfry/trainers/program/device_flag.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/program/inspect.h"
#include "belfry/trainers/program/memory_report.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/program/report.h"
#include "belfry/trainers/program/trainer_options.h"
#include "belfry/trainers/util/busy.h"
#include "belfry/trainers/util/clock.h"
#include "belfry/trainers/util/hash.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {
namespace {

void check_recipe(const Recipe& recipe) {
  require(static_cast<bool>(recipe.model), "the recipe has no model");
  require(static_cast<bool>(recipe.data), "the recipe has no data");
  require(static_cast<bool>(recipe.optimizer), "the recipe has no optimizer; e.g. sgd(0.1)");
  require(recipe.batch_size >= 1 && recipe.epochs >= 1, "the recipe has a batch size of ",
          recipe.batch_size, " and ", recipe.epochs, " epochs; both are at least 1");
  check_callbacks(recipe.callbacks, "the recipe's callbacks");
}

// What f() throws names the flag.
template <class F>
auto naming(const std::string& written, const F& f) try {
  return f();
} catch (const Error& error) {
  throw Error(cat(written, ": ", error.what()));
}

class SaveForFlag final : public SaveCheckpoint {
 public:
  explicit SaveForFlag(const TrainFlags& flags)
      : SaveCheckpoint(flags.save_checkpoint, flags.overwrite),
        written_(cat("--save_checkpoint=", flags.save_checkpoint)) {
    wait_for_test();
  }
  const std::string& written() const { return written_; }
  void setup(Trainer& trainer) override {
    naming(written_, [&] { SaveCheckpoint::setup(trainer); });
  }
  void after_epoch(Trainer& trainer, const StepInfo& info) override {
    naming(written_, [&] { SaveCheckpoint::after_epoch(trainer, info); });
  }
  void after_training(Trainer& trainer, const StepInfo& info) override {
    naming(written_, [&] { SaveCheckpoint::after_training(trainer, info); });
  }

 private:
  std::string written_;
};

// Behind the evaluation.
class SettleForFlag final : public Callback {
 public:
  explicit SettleForFlag(std::shared_ptr<SaveForFlag> save) : save_(std::move(save)) {}
  void after_epoch(Trainer& trainer, const StepInfo&) override { settle(trainer); }
  void after_training(Trainer& trainer, const StepInfo&) override { settle(trainer); }

 private:
  void settle(Trainer& trainer) {
    naming(save_->written(), [&] { save_->settle(trainer); });
  }

  std::shared_ptr<SaveForFlag> save_;
};

std::string restore_flag(const TrainFlags& flags) {
  return cat("--restore_checkpoint=", flags.restore_checkpoint);
}

// In the order that callbacks.h states. Returns the one that saves, if any does.
std::shared_ptr<SaveForFlag> add_callbacks(TrainerOptions& options, const TrainFlags& flags,
                                           const Recipe& recipe, Console& console) {
  std::shared_ptr<SaveForFlag> save;
  if (!flags.save_checkpoint.empty()) {
    save = naming(cat("--save_checkpoint=", flags.save_checkpoint),
                  [&] { return std::make_shared<SaveForFlag>(flags); });
    options.callbacks.push_back(save);
  }
  options.callbacks.push_back(std::make_shared<Progress>(console));
  options.callbacks.push_back(std::make_shared<Evaluation>(console));
  if (save) options.callbacks.push_back(std::make_shared<SettleForFlag>(save));
  options.callbacks.insert(options.callbacks.end(), recipe.callbacks.begin(),
                           recipe.callbacks.end());
  return save;
}

void print_header(Console& console, const std::string& program, const TrainFlags& flags,
                  Trainer& trainer, const Dataset& train, const Dataset* test) {
  if (!trainer.choice().empty()) console.line(trainer.choice());
  const BatchPlan& plan = trainer.batches();
  console.line(cat(program, ": ", flags.kind,
                   flags.trainer.aggregation.allreduce.empty()
                       ? ""
                       : cat(", ", trainer.options().aggregation.allreduce),
                   flags.async().empty() ? "" : cat(", ", flags.async()), " on ",
                   short_names(flags.trainer.devices), ", ", trainer.session().threads(),
                   " threads, seed ", flags.trainer.seed,
                   flags.trainer.precision == Precision::kF32
                       ? ""
                       : cat(", ", name_of(flags.trainer.precision))));
  console.line(cat("data: ", train.describe()));
  if (test) console.line(cat("test: ", test->describe()));
  const BatchForm& form = plan.forms().front();
  console.line(cat("batch: ", form.str(), " per device, ", form.total(),
                   " in all; one step takes one batch on every device; ", plan.steps_per_epoch(),
                   " steps per epoch"));
  if (plan.forms().size() > 1)
    console.line(cat("the last batch of an epoch has ", plan.forms().back().total(),
                     " examples: ", join(plan.forms().back().samples, " + ")));
  if (plan.dropped_per_epoch() > 0)
    console.line(cat("each epoch leaves out ", plan.dropped_per_epoch(),
                     " examples, which do not fill a batch"));
}

Report::Update update_report(const TrainFlags& flags, Trainer& trainer) {
  const TrainerOptions& made = trainer.options();
  const AggregationOptions& aggregation = made.aggregation;
  return {.trainer = flags.kind,
          .allreduce = aggregation.allreduce,
          .allreduce_requested = trainer.choice().empty() ? aggregation.allreduce : "auto",
          .gradient_repacking = aggregation.gradient_repacking,
          .small_tensors_kb = aggregation.small_tensors_kb,
          .bucket_mb = aggregation.bucket_mb,
          .learning_rate = made.optimizer.rate().str(),
          .async = flags.async(),
          .fuse_updates = made.session.fuse_updates,
          .share_replicas = made.session.share_replicas,
          .canonical = is_canonical({flags.kind, aggregation.allreduce}, trainer)};
}

Report::Losses losses_report(Trainer& trainer) {
  Report::Losses losses{.divergence = find_divergence(trainer), .scale = trainer.loss_scale()};
  if (trainer.steps_of_run() > 0) losses.loss = trainer.metric("loss");
  if (trainer.has_metric("test_loss")) losses.test_loss = trainer.metric("test_loss");
  if (trainer.has_metric("test_accuracy")) losses.test_accuracy = trainer.metric("test_accuracy");
  return losses;
}

Report make_report(const std::string& program, const TrainFlags& flags, const Recipe& recipe,
                   Trainer& trainer) {
  Session& session = trainer.session();
  const TrainerOptions& made = trainer.options();
  const std::vector<std::string> differing = differing_replicas(session, trainer.graph());
  if (!differing.empty()) log_error("copies differ from tower 0's variables: ", join(differing));
  return {.program = program,
          .flags = values_of(recipe.flags),
          .devices = made.devices,
          .deterministic = made.session.deterministic,
          .precision = std::string(name_of(made.precision)),
          .threads = session.threads(),
          .peak_bytes = session.peak_bytes(),
          .update = update_report(flags, trainer),
          .batches = {.batch_size = made.batch_size,
                      .global_batch_size = trainer.batches().global_batch(),
                      .shards = made.shards,
                      .k_dependent_because = trainer.k_dependence(),
                      .uneven = std::string(name_of(made.batches.uneven)),
                      .tower_weights = made.batches.tower_weights,
                      .seed = made.seed},
          .progress = {.steps = trainer.steps(),
                       .epochs = trainer.epochs(),
                       .examples_per_second = trainer.examples_per_second()},
          .losses = losses_report(trainer),
          .variables = {.params_hash = params_hash(session, trainer.graph()),
                        .state_hash = state_hash(session, trainer.graph()),
                        .replicas_equal = differing.empty(),
                        .replicas_shared = count_shared(session, trainer.graph())}};
}

ProcessMemory memory_use(Trainer& trainer, const Dataset& train, std::int64_t rss_before_plan) {
  const std::int64_t batch = bytes_of_batch(train, trainer.batches().global_batch());
  return {.planned_bytes = host_bytes(trainer.session().device_use()) + Prefetcher::kSlots * batch,
          .rss_before_plan_bytes = rss_before_plan,
          .peak_rss_bytes = peak_resident_bytes()};
}

// An error says what was saved before it.
void train_and_save(Trainer& trainer, const SaveCheckpoint* save) try {
  trainer.train();
} catch (const std::exception& error) {
  const std::string saved = save ? save->saved() : "";
  if (saved.empty()) throw;
  throw Error(cat(error.what(), "; ", saved));
}

void warn_of_no_trace(const TrainFlags& flags, const Trainer& trainer) {
  log_warning("--trace_file=", flags.trace_file, " was not written: this run ended after ",
              trainer.steps_of_run(),
              " steps, before one to trace; train longer by --epochs or --max_steps");
}

// Returns the error of a run that had diverged, which is reported all the same.
std::exception_ptr run_training(Trainer& trainer, const TrainFlags& flags,
                                const SaveCheckpoint* save, Console& console) {
  if (flags.trainer.session.log_device_placement)
    console.line(balance_report(trainer.graph(), trainer.options().devices).str());
  if (!flags.restore_checkpoint.empty())
    console.line(naming(restore_flag(flags),
                        [&] { return restore_training(trainer, flags.restore_checkpoint); }));
  try {
    train_and_save(trainer, save);
  } catch (const std::exception&) {
    if (!trainer.session().intact() || !find_divergence(trainer)) throw;
    return std::current_exception();
  }
  return nullptr;
}

void require_saved(const SaveForFlag* save) {
  if (save && !save->failure().empty()) throw IoError(cat(save->written(), ": ", save->failure()));
}

// A run that goes on from one that chose, without a wish of its own, chooses too; and as that did,
// if it can and is not told to measure again.
void go_on_choosing(TrainerOptions& options, const TrainFlags& flags, const CheckpointInfo& info) {
  AggregationOptions& aggregation = options.aggregation;
  aggregation.choice.kept = choice_in(info);
  aggregation.choice.choose_anew = flags.automatic.remeasure;
  const TrainerKind& kind = find_trainer(flags.kind);
  const bool can = kind.accepts && kind.accepts("auto");
  if (aggregation.choice.kept && !flags.allreduce_given && can) aggregation.allreduce = "auto";
  check_auto_flags(flags.automatic, aggregation.choice.any,
                   aggregation.allreduce == "auto" || flags.check_equivalence > 0,
                   cat("--allreduce=auto, now or when ", flags.restore_checkpoint, " was saved,"));
}

void load(const Dataset& train, const Dataset* test) {
  const Busy busy("reading the data");
  train.size();
  if (test) test->size();
}

int train_program(const std::string& program, const TrainFlags& flags, const Recipe& recipe) {
  // Opened before anything is built, so that what cannot be written costs no training.
  OutputFiles outputs(local_file_system());
  outputs.reserve_input(cat("--links=", flags.automatic.links), flags.automatic.links);
  outputs.reserve_input(restore_flag(flags), flags.restore_checkpoint, {kOldCheckpoint});
  OutputFile* const json = outputs.open("--json", flags.json);
  OutputFile* const memory = outputs.open("--memory_report", flags.memory_report);
  OutputFile* const trace_file = outputs.open("--trace_file", flags.trace_file);
  outputs.reserve("--save_checkpoint", flags.save_checkpoint, {kOldCheckpoint, kCheckpointLock});
  AlgorithmsFile algorithms(local_file_system(), outputs, flags.algorithms,
                            flags.trainer.session.deterministic);
  // Whoever asked for a file on stdout gets nothing else there.
  Console console(outputs.on_stdout() ? stderr : stdout);
  TrainerOptions options = trainer_options(flags, recipe.model, recipe.optimizer);
  options.session.placement_sink = [&](std::string_view text) {
    console.line(without_line_break(text));
  };
  const std::shared_ptr<SaveForFlag> save = add_callbacks(options, flags, recipe, console);
  if (trace_file) options.on_trace = [&](const Trace& trace) { trace_file->write(trace.str()); };
  if (!flags.restore_checkpoint.empty())
    go_on_choosing(options, flags, naming(restore_flag(flags), [&] {
                     return inspect_checkpoint(flags.restore_checkpoint);
                   }));

  const RunDirs dirs{.data_dir = flags.data_dir};
  const std::unique_ptr<Dataset> train_data = recipe.data(dirs, true);
  const std::unique_ptr<Dataset> test_data = recipe.data(dirs, false);
  require(train_data != nullptr, "the recipe's data source gave no training data");
  for (const Dataset* data : {train_data.get(), test_data.get()})
    if (data)
      for (const std::string& file : data->files())
        outputs.reserve_input(cat("--data_dir=", flags.data_dir), file);
  if (flags.plans()) {
    inspect(flags, options, *train_data, test_data.get(), console, json, memory);
    outputs.finish();
    return 0;
  }
  load(*train_data, test_data.get());
  if (flags.check_equivalence > 0) {
    const int status =
        report_equivalence(options, *train_data, flags.check_equivalence, console, json);
    algorithms.write();
    outputs.finish();
    return status;
  }
  const double began = seconds_now();
  const std::int64_t rss_before_plan = resident_bytes();
  const std::unique_ptr<Trainer> trainer = [&] {
    const Busy busy(cat("building the model for ", options.devices.size(), " devices"));
    return std::make_unique<Trainer>(find_trainer(flags.kind), options, *train_data,
                                     test_data.get());
  }();
  const double startup_seconds = seconds_since_start();
  print_header(console, program, flags, *trainer, *train_data, test_data.get());
  const std::exception_ptr error = run_training(*trainer, flags, save.get(), console);
  const double seconds = seconds_now() - began;
  if (trace_file && !trace_file->asked_to_write()) warn_of_no_trace(flags, *trainer);
  algorithms.write();
  Report report = make_report(program, flags, recipe, *trainer);
  report.progress.startup_seconds = startup_seconds;
  report.progress.seconds = seconds;
  report.memory = memory_use(*trainer, *train_data, rss_before_plan);
  console.line(to_table(report));
  if (json) json->write(to_json(report));
  if (memory) write_memory_report(trainer->session(), *memory);
  if (error) std::rethrow_exception(error);
  require<Error>(!report.losses.divergence, "training diverged: ", report.losses.divergence,
                 "; a smaller --learning_rate may help");
  require_saved(save.get());
  outputs.finish();
  return 0;
}

}  // namespace

int train(int argc, char** argv, const Recipe& recipe) {
  const auto parse = [&](std::span<const char* const> arguments, const std::string& program) {
    check_recipe(recipe);
    return parse_flags(arguments, {.program = program,
                                   .batch_size = recipe.batch_size,
                                   .epochs = recipe.epochs,
                                   .reads_files = recipe.data.reads_files(),
                                   .own = recipe.flags});
  };
  const auto run = [&](const TrainFlags& flags) {
    return train_program(program_name(argc, argv), flags, recipe);
  };
  return run_program(argc, argv, parse, run);
}

}  // namespace belfry
