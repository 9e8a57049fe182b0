#include "belfry/trainers/train.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "belfry/framework/checkpoint.h"
#include "belfry/framework/log.h"
#include "belfry/towers/balance.h"
#include "belfry/trainers/flags.h"
#include "belfry/trainers/hash.h"
#include "belfry/trainers/inspect.h"
#include "belfry/trainers/output_file.h"
#include "belfry/trainers/report.h"
#include "belfry/trainers/trainer_kinds.h"
#include "belfry/trainers/training_checkpoint.h"

namespace belfry {
namespace {

std::string short_name(const DeviceSpec& device) {
  return cat(device.type.value_or("?"), ":", device.index.value_or(0));
}

std::string program_name(const char* path) {
  const std::string_view text = path ? path : "train";
  return std::string(text.substr(text.rfind('/') + 1));
}

// Without the line break at its end.
std::string_view trimmed(std::string_view text) {
  return text.substr(0, text.size() - (text.ends_with('\n') ? 1 : 0));
}

bool inspects(const TrainFlags& flags) { return flags.dry_run || !flags.explain.empty(); }

TrainerOptions trainer_options(const TrainFlags& flags, const Recipe& recipe, Console& console) {
  TrainerOptions options{
      .model = recipe.model,
      .optimizer = recipe.optimizer,
      .devices = flags.devices,
      .allreduce = flags.allreduce,
      .gradient_repacking = flags.gradient_repacking,
      .batch_size = flags.batch_size,
      .epochs = flags.epochs,
      .max_steps = flags.max_steps,
      .seed = flags.seed,
      .threads = flags.threads,
      .log_device_placement = flags.log_device_placement || flags.dry_run,
      .placement_sink = [&](std::string_view text) { console.line(trimmed(text)); },
      .dry_run = inspects(flags)};
  if (flags.learning_rate) options.optimizer = recipe.optimizer.with_rate(*flags.learning_rate);
  options.callbacks = {std::make_shared<Progress>(console), std::make_shared<Evaluation>(console)};
  options.callbacks.insert(options.callbacks.end(), recipe.callbacks.begin(),
                           recipe.callbacks.end());
  if (!flags.save_checkpoint.empty())
    options.callbacks.push_back(std::make_shared<SaveCheckpoint>(flags.save_checkpoint));
  return options;
}

void print_header(Console& console, const std::string& program, const TrainFlags& flags,
                  Trainer& trainer, const Dataset& train, const Dataset* test) {
  std::vector<std::string> names;
  for (const DeviceSpec& device : flags.devices) names.push_back(short_name(device));
  const BatchPlan& plan = trainer.batches();
  console.line(cat(
      program, ": ", flags.trainer, flags.allreduce.empty() ? "" : cat(", ", flags.allreduce),
      " on ", join(names, " "), ", ", trainer.session().threads(), " threads, seed ", flags.seed));
  console.line(cat("data: ", train.describe()));
  if (test) console.line(cat("test: ", test->describe()));
  console.line(cat("batch: ", plan.batch_size(), " per device, ", plan.global_batch(),
                   " in all; one step takes one batch on every device; ", plan.steps_per_epoch(),
                   " steps per epoch"));
  if (plan.dropped_per_epoch() > 0)
    console.line(cat("each epoch leaves out ", plan.dropped_per_epoch(),
                     " examples, which do not fill a batch"));
}

Report make_report(const std::string& program, const TrainFlags& flags, Trainer& trainer) {
  Session& session = trainer.session();
  const std::vector<std::string> differing = differing_replicas(session, trainer.graph());
  if (!differing.empty()) log_error("copies differ from tower 0's variables: ", join(differing));
  Report report{.program = program,
                .devices = flags.devices,
                .trainer = flags.trainer,
                .allreduce = flags.allreduce,
                .batch_size = flags.batch_size,
                .seed = flags.seed,
                .threads = session.threads(),
                .steps = trainer.steps(),
                .epochs = trainer.epochs(),
                .examples_per_second = trainer.examples_per_second(),
                .loss = trainer.metric("loss"),
                .params_hash = params_hash(session, trainer.graph()),
                .state_hash = state_hash(session, trainer.graph()),
                .replicas_equal = differing.empty(),
                .peak_bytes = session.peak_bytes()};
  if (trainer.has_metric("test_accuracy")) report.test_accuracy = trainer.metric("test_accuracy");
  return report;
}

// --dry_run and --explain.
void inspect(Trainer& trainer, const TrainFlags& flags, bool predicts, Console& console,
             std::optional<OutputFile>& file) {
  Json json;
  std::optional<Explanation> explanation;
  if (!flags.explain.empty()) explanation = explain_node(trainer, flags.explain);
  if (flags.dry_run) json = dry_run(trainer, predicts, console);
  if (explanation) {
    console.line(trimmed(explanation->str()));
    json = to_json(*explanation);
  }
  if (file) file->write(json.str(2) + "\n");
}

int run_program(int argc, char** argv, const Recipe& recipe) {
  const std::string program = program_name(argc > 0 ? argv[0] : nullptr);
  require(static_cast<bool>(recipe.data), "the recipe has no data");
  const TrainFlags flags = parse_flags(
      std::span<const char* const>(argv, static_cast<std::size_t>(argc)).subspan(std::min(argc, 1)),
      {.program = program,
       .batch_size = recipe.batch_size,
       .epochs = recipe.epochs,
       .reads_files = recipe.data.reads_files()});
  if (!flags.help.empty()) {
    std::fputs(flags.help.c_str(), stdout);
    return 0;
  }
  std::optional<OutputFile> json, trace;
  FileSystem& files = local_file_system();
  if (!flags.json.empty()) json.emplace(files, "--json", flags.json);
  if (!flags.trace_file.empty()) trace.emplace(files, "--trace_file", flags.trace_file);
  // Whoever asked for a file on stdout gets nothing else there.
  const bool taken = (json && json->is_stdout()) || (trace && trace->is_stdout());
  Console console(taken ? stderr : stdout);

  TrainerOptions options = trainer_options(flags, recipe, console);
  if (trace) options.on_trace = [&](const Trace& recorded) { trace->write(recorded.str()); };

  if (!flags.restore_checkpoint.empty()) inspect_checkpoint(flags.restore_checkpoint);

  const RunDirs dirs{.data_dir = flags.data_dir};
  const std::unique_ptr<Dataset> train_data = recipe.data(dirs, true);
  const std::unique_ptr<Dataset> test_data = recipe.data(dirs, false);
  require(train_data != nullptr, "the recipe's data source gave no training data");
  const TrainerKind& kind = find_trainer(flags.trainer);
  if (inspects(flags)) {
    const std::unique_ptr<Trainer> trainer = kind.make(options, *train_data, test_data.get());
    inspect(*trainer, flags, test_data != nullptr, console, json);
    return 0;
  }
  train_data->size();  // loads it
  if (test_data) test_data->size();
  const auto began = std::chrono::steady_clock::now();
  const std::unique_ptr<Trainer> trainer = kind.make(options, *train_data, test_data.get());
  print_header(console, program, flags, *trainer, *train_data, test_data.get());
  if (flags.log_device_placement)
    console.line(balance_report(trainer->graph(), flags.devices).str());
  if (!flags.restore_checkpoint.empty())
    console.line(restore_training(*trainer, flags.restore_checkpoint));
  trainer->train();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  Report report = make_report(program, flags, *trainer);
  report.seconds = seconds.count();
  console.line(to_table(report));
  if (json) json->write(to_json(report));
  return 0;
}

// One line, whatever the message.
int fail(const std::exception& error, int code) {
  std::string text = error.what();
  std::ranges::replace(text, '\n', ' ');
  std::fprintf(stderr, "error: %s\n", text.c_str());
  return code;
}

}  // namespace

int train(int argc, char** argv, const Recipe& recipe) {
  try {
    return run_program(argc, argv, recipe);
  } catch (const FlagError& error) {
    return fail(error, 2);
  } catch (const std::exception& error) {
    return fail(error, 1);
  }
}

}  // namespace belfry
