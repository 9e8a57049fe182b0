#include "belfry/trainers/program/training_run.h"

#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/some_names.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/weights.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/names/named_weights.h"
#include "belfry/trainers/program/configuration.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/program/program_processes.h"
#include "belfry/trainers/runs/memory_folders.h"
#include "belfry/trainers/runs/predictor.h"
#include "belfry/trainers/runs/replica_check.h"
#include "belfry/trainers/runs/run_error.h"
#include "belfry/trainers/runs/tensorboard.h"

namespace belfry {
namespace {

// As of layers that are frozen under an OverrideCachingDevice.
void warn_of_unsaved(const Graph& graph) {
  std::vector<std::string> names;
  for (const Variable& weight : unsaved_weights_of(graph)) names.emplace_back(weight.name());
  if (names.empty()) return;
  log_warning("checkpoints leave out local weights that are not trained: ", names.size(), " (",
              some_names(names),
              "), so a resumed run starts them anew; make them global to keep them");
}

}  // namespace

std::unique_ptr<RunDirectory> take_run_directory(const TrainFlags& flags) {
  if (flags.run.directory.empty() || !speaks(flags)) return nullptr;
  const std::string written = cat("--run_dir=", flags.run.directory);
  try {
    return std::make_unique<RunDirectory>(flags.run.directory);
  } catch (const IoError& error) {
    throw FlagError(with_flag(written, error));
  } catch (const Error& error) {
    throw Error(with_flag(written, error));
  }
}

TrainingRun::TrainingRun(const TrainFlags& flags, Console& console,
                         std::unique_ptr<RunDirectory> directory)
    : flags_(flags),
      console_(console),
      directory_(std::move(directory)),
      restart_(RestartTimes::of_this_start(console)),
      start_(flags, console, directory_.get()) {
  if (directory_) make_parts();
  if (!flags.run.directory.empty() && !flags.trainer.evaluates_only)
    memory_saver_ = std::make_shared<MemorySaver>(
        MemorySaver::Options{.every_steps = flags.memory_save_every_steps(),
                             .refuses = flags.run.schedule.memory_every_steps.has_value()},
        flags.trainer.session.processes.get(), saver_.get());
  if (memory_saver_) memory_saver_->set_run_id(run_id_of(flags.run.directory));
  stop_ = std::make_shared<StopOnRequest>(flags.run.max_seconds, saver_.get());
}

TrainingRun::~TrainingRun() { console_.copy_to({}); }

void TrainingRun::make_parts() {
  FileSystem& files = directory_->files();
  const OnSaveError on_error = flags_.run.schedule.on_error;
  log_ = std::make_shared<RunLog>(files, directory_->path_of(kLogFile));
  console_.copy_to([log = log_](std::string_view text) { log->line(text); });
  memory_ = std::make_shared<MemoryWatch>(flags_.run.memory_every);
  stats_ = std::make_shared<StatsLog>(files, directory_->path_of(kStatsFile), on_error, memory_);
  saver_ = std::make_shared<RunSaver>(*directory_, flags_.run.schedule);
  saver_->keep_in_step(stats_->file());
  JsonValue noted = JsonValue::object();
  note_needs(start_.needs(), noted);
  saver_->note(std::move(noted));
  const std::string hashes = directory_->path_of(kHashesFile);
  if (flags_.run.hash_every > 0) {
    hashes_ = std::make_shared<HashLog>(files, hashes, flags_.run.hash_every, on_error);
    saver_->keep_in_step(hashes_->file());
  } else if (files.target_kind(hashes) == FileKind::kFile && !start_.replaces_run()) {
    older_hashes_ = std::make_unique<LineFile>(files, hashes, on_error);
    saver_->keep_in_step(*older_hashes_);
  }
}

std::vector<std::shared_ptr<Callback>> TrainingRun::callbacks() {
  std::vector<std::shared_ptr<Callback>> result{stop_};
  if (restart_) result.push_back(restart_);
  if (stats_) result.insert(result.end(), {log_, memory_, stats_});
  if (hashes_) result.push_back(hashes_);
  if (!hashes_ && flags_.run.hash_every > 0 && flags_.group.processes > 1)
    result.push_back(std::make_shared<HashLog>(flags_.run.hash_every));
  const std::int64_t by_default = flags_.group.processes > 1 ? ReplicaCheck::kEvery : 0;
  if (const std::int64_t every = flags_.run.check_replicas_every.value_or(by_default); every > 0)
    result.push_back(std::make_shared<ReplicaCheck>(every, directory_.get()));
  if (directory_)
    result.push_back(std::make_shared<TensorBoard>(directory_->path_of(kTensorBoardFolder),
                                                   TensorBoardOptions{.memory = memory_},
                                                   directory_->files()));
  if (saver_) result.push_back(saver_);
  if (memory_saver_) result.push_back(memory_saver_);
  return result;
}

std::optional<JsonValue> TrainingRun::finished(const Trainer& trainer) const {
  if (!directory_ || !start_.resumed_from()) return {};
  const std::optional<std::string> text = directory_->read(kSummaryFile);
  if (!text) return {};
  try {
    JsonValue summary = JsonValue::parse(*text);
    const JsonValue* const ended = summary.find("finished");
    if (ended && ended->kind() == JsonValue::Kind::kBool && ended->str() == "true" &&
        summary.at("steps").integer() == trainer.steps()) {
      // A run that ended early resumes only if its length has changed and is not reached yet, or if
      // the option that stopped it has changed.
      const JsonValue* const total = summary.find("total_steps");
      const bool as_before =
          total && total->integer() == trainer.progress().total_steps() && !is_stopped_otherwise();
      if (as_before || trainer.progress().total_steps() <= trainer.steps()) return summary;
    }
  } catch (const Error& error) {
    log_warning(directory_->path_of(kSummaryFile), " cannot be read: ", error.what());
  }
  return {};
}

// Whether the run was ended by a flag --early_stop that is not given now, or is another one.
bool TrainingRun::is_stopped_otherwise() const {
  const std::optional<JsonValue> config = run_config(directory_->files(), directory_->path());
  const JsonValue* const before = config ? config->find("early_stop") : nullptr;
  const JsonValue* const now = flags_.config.find("early_stop");
  return before && (!now || now->str() != before->str());
}

void TrainingRun::begin(Trainer& trainer, const std::string& placement) {
  if (!start_.resumed_line().empty()) console_.line(start_.resumed_line());
  if (!directory_) return;
  const JsonValue config = config_of_run(trainer);  // knows the run that is there
  start_.remove_replaced();
  directory_->tidy();
  directory_->files().remove(directory_->path_of(kSummaryFile));
  directory_->write(kConfigFile, config.str(2) + "\n");
  directory_->write(kPlacementFile, placement);
  if (restart_) restart_->set_lost_step(newest_step_in(directory_->files(), stats_->file().path()));
  start_.cut_lines(stats_->file());
  if (hashes_) start_.cut_lines(hashes_->file());
  if (older_hashes_) start_.cut_lines(*older_hashes_);
  log_->open();
  warn_of_unsaved(trainer.graph());
  write_graph(trainer.built());
  console_.line(cat(
      "run: ", directory_->path(),
      start_.resumed_from() ? cat(", resuming at step ", trainer.steps()) : ", from the start"));
}

// A run that starts anew, or from a checkpoint of the user's choice, is another one to the saves in
// memory.
JsonValue TrainingRun::config_of_run(const Trainer& trainer) {
  JsonValue config = flags_.config;
  if (start_.found() && !flags_.given.batch)
    config.set("global_batch_size", trainer.built().batches().global_batch());
  // Flags alone do not give it: it follows from the model, too.
  set_flag(config, "shards", trainer.built().options().shards);
  const bool goes_on = start_.resumed_from() && flags_.run.resume == "auto";
  const std::string before = run_id_of(directory_->path(), directory_->files());
  std::string id = goes_on ? before : "";
  if (id != before) remove_memory_saves(before);
  if (id.empty() && flags_.memory_save_every_steps() > 0) id = new_run_id();
  JsonValue chosen = config.at(kChosen);
  if (!id.empty()) chosen.set(kRunId, id);
  if (const std::string from = start_.began_from(); !from.empty()) chosen.set(kBeganFrom, from);
  config.set(kChosen, std::move(chosen));
  if (memory_saver_) memory_saver_->set_run_id(id);
  return config;
}

// The graph that `belfry checkpoint export` puts into plans. The run trains without it, too. A
// restart repeats a command, so the graph is the same.
void TrainingRun::write_graph(const BuiltTraining& built) try {
  if (restart_ && start_.resumed_from() &&
      directory_->files().exists(directory_->path_of(kGraphFile)))
    return;
  std::vector<PredictorInput> inputs;
  for (const Dataset::Field& field : built.train_data().signature()) {
    std::vector<std::int64_t> dims = field.shape.dims();
    dims.insert(dims.begin(), kUnknownSize);
    inputs.push_back({field.name, Shape(dims), field.dtype});
  }
  if (const auto graph = predicting_graph_file(built.options().model, inputs))
    directory_->write(kGraphFile, *graph);
  else
    directory_->files().remove(directory_->path_of(kGraphFile));
} catch (const IoError&) {
  throw;                                 // of the directory
} catch (const std::exception& error) {  // of the model
  directory_->files().remove(directory_->path_of(kGraphFile));
  log_warning("no plan can be made of this run: ", error.what());
}

std::string TrainingRun::saved() const {
  const std::optional<std::int64_t> step = saver_ ? saver_->kept_step() : std::nullopt;
  return step ? cat("step ", *step, " is saved in ", directory_->path()) : "";
}

void TrainingRun::write_trace(std::int64_t step, const std::string& trace) try {
  directory_->write_trace(step, trace);
} catch (const IoError& error) {
  log_warning("the trace of step ", step, " is not kept: ", error.what());
}

void TrainingRun::end(Trainer& trainer, const JsonValue& report, const End& end) {
  if (!directory_) return;
  JsonValue summary = report;
  JsonValue told;
  const std::optional<std::int64_t> resumed_from = start_.resumed_from();
  if (end.error) told = error_json(*end.error, trainer, saved());
  summary.set("total_steps", trainer.progress().total_steps())
      .set("resumed_from_step", resumed_from ? JsonValue(*resumed_from) : JsonValue())
      .set("finished", end.is_trained && !trainer.loop().interrupted())
      .set("exit_code", end.exit_code)
      .set("error", std::move(told));
  if (end.error) log_->line(error_line(*end.error));
  log_->finish();
  directory_->write(kSummaryFile, summary.str(2) + "\n");
}

}  // namespace belfry
