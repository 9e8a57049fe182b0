#include "belfry/trainers/train.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "belfry/framework/log.h"
#include "belfry/trainers/flags.h"
#include "belfry/trainers/hash.h"
#include "belfry/trainers/report.h"
#include "belfry/trainers/trainer_kinds.h"

namespace belfry {
namespace {

std::string short_name(const DeviceSpec& device) {
  return cat(device.type.value_or("?"), ":", device.index.value_or(0));
}

std::string program_name(const char* path) {
  const std::string_view text = path ? path : "train";
  return std::string(text.substr(text.rfind('/') + 1));
}

TrainerOptions trainer_options(const TrainFlags& flags, const Recipe& recipe, Console& console) {
  TrainerOptions options{.model = recipe.model,
                         .optimizer = recipe.optimizer,
                         .devices = flags.devices,
                         .allreduce = flags.allreduce,
                         .gradient_repacking = flags.gradient_repacking,
                         .batch_size = flags.batch_size,
                         .epochs = flags.epochs,
                         .max_steps = flags.max_steps,
                         .seed = flags.seed,
                         .threads = flags.threads,
                         .log_device_placement = flags.log_device_placement};
  if (flags.learning_rate) options.optimizer = recipe.optimizer.with_rate(*flags.learning_rate);
  options.callbacks = {std::make_shared<Progress>(console), std::make_shared<Evaluation>(console)};
  options.callbacks.insert(options.callbacks.end(), recipe.callbacks.begin(),
                           recipe.callbacks.end());
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
  std::optional<ReportFile> json;
  if (!flags.json.empty()) json.emplace(local_file_system(), flags.json);
  // Whoever asked for JSON on stdout gets nothing else there.
  Console console(json && json->is_stdout() ? stderr : stdout);

  const RunDirs dirs{.data_dir = flags.data_dir};
  const std::unique_ptr<Dataset> train_data = recipe.data(dirs, true);
  const std::unique_ptr<Dataset> test_data = recipe.data(dirs, false);
  require(train_data != nullptr, "the recipe's data source gave no training data");
  const auto began = std::chrono::steady_clock::now();
  const std::unique_ptr<Trainer> trainer =
      find_trainer(flags.trainer)
          .make(trainer_options(flags, recipe, console), *train_data, test_data.get());
  print_header(console, program, flags, *trainer, *train_data, test_data.get());
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
