#include "belfry/trainers/program/training_run.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/some_names.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/weights.h"
#include "belfry/trainers/core/fingerprint_difference.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/names/named_weights.h"
#include "belfry/trainers/optimizers/weight_averages.h"
#include "belfry/trainers/program/flag_conflicts_impl.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/program/program_processes.h"
#include "belfry/trainers/runs/find_in_memory.h"
#include "belfry/trainers/runs/memory_folders.h"
#include "belfry/trainers/runs/predictor.h"
#include "belfry/trainers/runs/replica_check.h"
#include "belfry/trainers/runs/run_checkpoints.h"
#include "belfry/trainers/runs/run_error.h"
#include "belfry/trainers/runs/tensorboard.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

// The checkpoints of a run directory, the newest first. A path that is a checkpoint is the only
// one.
std::vector<std::string> checkpoints_at(const std::string& path) {
  if (!is_run_directory(path)) return {path};
  std::vector<std::string> paths;
  for (const RunCheckpoint& checkpoint : checkpoints_of_run(path)) paths.push_back(checkpoint.path);
  std::ranges::reverse(paths);
  return paths;
}

bool has_checkpoints(const std::string& directory) try {
  return is_run_directory(directory) && !checkpoints_of_run(directory).empty();
} catch (const NotFoundError&) {
  return false;
}

// Whether summary.json says that a run ended without an error.
bool ended_well(const std::optional<std::string>& summary) try {
  if (!summary) return false;
  const JsonValue json = JsonValue::parse(*summary);
  const JsonValue* const error = json.find("error");
  return error && error->kind() == JsonValue::Kind::kNull;
} catch (const Error&) {
  return false;
}

// What --load stands for.
std::string loaded_checkpoint(const RunFlags& flags) {
  return checkpoint_at(flags.load, flags.load_checkpoint);
}

// The configuration with the number of shards, which decides bits. Flags alone do not give it: it
// follows from the model, too.
JsonValue with_shards(const JsonValue& config, std::int64_t shards) {
  JsonValue whole = JsonValue::object();
  for (const auto& [name, value] : config.members()) {
    if (name == kChosen) whole.set("shards", shards);
    whole.set(name, value);
  }
  return whole;
}

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
      restart_(RestartTimes::of_this_start(console)) {
  if (directory_) check_replacing();
  find(flags);
  if (directory_) require_room(flags);
  if (replaces_ || !later_.empty())
    naming_flag<FlagError>("--overwrite", [&] {
      directory_->require_removable(replaces_ ? directory_->checkpoints() : later_);
    });
  if (found_)
    needs_ = needs_in(found_->extra);
  else if (!flags.run.load.empty())
    look_at_loaded();
  if (directory_) make_parts();
  if (!flags.run.directory.empty() && !flags.inspection.evaluate_only)
    memory_saver_ = std::make_shared<MemorySaver>(
        MemorySaver::Options{.every_steps = flags.memory_save_every_steps(),
                             .refuses = flags.run.schedule.memory_every_steps.has_value()},
        flags.trainer.session.processes.get(), saver_.get());
  if (memory_saver_) memory_saver_->set_run_id(run_id_of(flags.run.directory));
  stop_ = std::make_shared<StopOnRequest>(flags.run.max_seconds, saver_.get());
}

TrainingRun::~TrainingRun() { console_.copy_to({}); }

// Refuses what cannot be loaded, before anything is built.
void TrainingRun::look_at_loaded() {
  const std::string& path = flags_.run.load;
  const std::string written = cat("--load=", path);
  if (!flags_.run.names.empty()) {
    names_ = as_flag(cat("--names=", flags_.run.names),
                     [&] { return find_name_rules(flags_.run.names); });
    naming_flag<Error>(written, [&] { const TensorFiles heads(path); });
    needs_ = names_->needs;
  } else {
    require<FlagError>(!path.ends_with(".safetensors") && !path.ends_with(".json"), written,
                       " is no checkpoint; say whose names its weights have, by --names=NAME");
    naming_flag<Error>(written,
                       [&] { loaded_ = inspect_checkpoint(loaded_checkpoint(flags_.run)); });
    needs_ = needs_in(loaded_->extra);
  }
  for (const auto& [name, value] : needs_) require_needed(name, value);
}

// Weights fit a model that computes something else with them, too, such as other padding.
void TrainingRun::require_needed(const std::string& name, const std::string& value) const {
  const std::string wanted = cat("--", name, "=", value);
  const Option<TrainFlags>* const option = find_option(*flags_.table, name);
  if (!option)
    return log_warning("--load=", flags_.run.load,
                       ": where these weights are from, models compute as with ", wanted,
                       ", a flag that this program lacks; see to it that its model computes the "
                       "same");
  require_flag(is_needed_value(option->value(flags_), value), name, "--load=", flags_.run.load,
               ": these weights need ", wanted,
               "; with anything else they fit, and the results are wrong");
}

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
  note_needs(needs_, noted);
  saver_->note(std::move(noted));
  const std::string hashes = directory_->path_of(kHashesFile);
  if (flags_.run.hash_every > 0) {
    hashes_ = std::make_shared<HashLog>(files, hashes, flags_.run.hash_every, on_error);
    saver_->keep_in_step(hashes_->file());
  } else if (files.target_kind(hashes) == FileKind::kFile && !replaces_) {
    older_hashes_ = std::make_unique<LineFile>(files, hashes, on_error);
    saver_->keep_in_step(*older_hashes_);
  }
}

void TrainingRun::check_replacing() {
  if (flags_.run.resume != "never" || directory_->is_empty()) return;
  require<FlagError>(flags_.files.overwrite, "--resume=never: ", directory_->path(),
                     " holds a run already; name another directory, go on with that run "
                     "(--resume=auto), or let it be replaced (--overwrite)");
  replaces_ = true;
}

void TrainingRun::find(const TrainFlags& flags) {
  const std::string& resume = flags.run.resume;
  if (resume == "never" || (resume == "auto" && flags.run.directory.empty())) return;
  const bool automatic = resume == "auto";
  written_ = automatic ? cat("--run_dir=", flags.run.directory) : cat("--resume=", resume);
  if (automatic && !flags.plans() && !flags.inspection.evaluate_only)
    in_memory_ = find_in_memory(flags.trainer.session.processes.get(), flags.run.directory);
  const bool on_disk = !automatic || has_checkpoints(flags.run.directory);
  if (!on_disk && in_memory_.empty()) return check_new_start();
  if (on_disk) find_newest(automatic ? flags.run.directory : resume);
  if (!in_memory_.empty()) find_saved_in_memory();
}

// A save in memory comes before those on disk, which are older.
void TrainingRun::find_saved_in_memory() try {
  found_ = inspect_checkpoint(in_memory_);
  candidates_.insert(candidates_.begin(), in_memory_);
} catch (const Error& error) {
  give_up_memory(error);
  if (candidates_.empty()) check_new_start();
}

// All processes resume from the same step, so that others cannot go on from their saves now. They
// can at the next start, which sends one of those to this host.
void TrainingRun::give_up_memory(const Error& error) {
  remove_damaged_save(std::exchange(in_memory_, ""));
  const std::string why = cat("a damaged save in memory, which is now removed: ", error.what());
  require<IoError>(!flags_.trainer.session.processes, written_, ": ", why,
                   "; start the same command again");
  log_warning("resume: skipped ", why);
}

// A run that is still training removes listed checkpoints and saves others. If one is gone, they
// are listed again.
void TrainingRun::find_newest(const std::string& path) {
  constexpr int kMostLooks = 10;
  searched_ = path;
  for (;;) try {
      require<IoError>(looks_++ < kMostLooks, written_,
                       ": the run replaces its checkpoints faster than they can be read; try again "
                       "later");
      const std::string why = look_for_newest();
      require<IoError>(why.empty(), written_, ": ", why);
      return;
    } catch (const NotFoundError& error) {
      if (!is_run_directory(path)) throw IoError(with_flag(written_, error));
    }
}

// Returns why no checkpoint can be read; "" if one was found. Throws NotFoundError if the last of
// those that were listed is gone.
std::string TrainingRun::look_for_newest() {
  candidates_ = checkpoints_at(searched_);
  for (;;) try {
      found_ = inspect_checkpoint(candidates_.front());
      return "";
    } catch (const Error& error) {
      const std::string why = error.what();
      const bool is_gone = dynamic_cast<const NotFoundError*>(&error) != nullptr;
      candidates_.erase(candidates_.begin());
      if (candidates_.empty() && is_gone) throw;
      if (candidates_.empty()) return why;
      if (!is_gone) log_warning("resume: skipped a checkpoint: ", why);
    }
}

// A run that was killed before its first save starts anew. One that ended without an error has
// saved, so its checkpoints were removed since.
void TrainingRun::check_new_start() const {
  if (!directory_) return;
  const std::string log = directory_->read(kStatsFile).value_or("");
  const auto lines = std::ranges::count(log, '\n');
  require<IoError>(!ended_well(directory_->read(kSummaryFile)), written_, ": ", directory_->path(),
                   " holds a run that has ended, but none of its checkpoints; put one back, name "
                   "another directory, or replace the run (--resume=never --overwrite), with ",
                   lines, " lines of ", kStatsFile);
  if (lines > 0)
    log_warning(written_, ": ", directory_->path(),
                " has no checkpoint to go on from; the run starts anew and replaces ", lines,
                lines == 1 ? " line of " : " lines of ", kStatsFile);
}

// A run may resume from a checkpoint that the user named. Other contents of the directory would
// then be lost, or be taken for the newest state.
void TrainingRun::require_room(const TrainFlags& flags) {
  if (!found_ || flags.run.resume == "auto" || directory_->is_empty()) return;
  if (!is_own(found_->path)) {
    require<FlagError>(flags.files.overwrite, written_, ": ", directory_->path(),
                       " holds another run already; name another --run_dir, or let that run be "
                       "replaced (--overwrite)");
    replaces_ = true;
    return;
  }
  const std::int64_t from = position_in(*found_).steps;
  for (const std::int64_t step : directory_->checkpoints())
    if (step > from) later_.push_back(step);
  require<FlagError>(later_.empty() || flags.files.overwrite, written_, " goes back to step ", from,
                     ", but ", directory_->path(), " has step ", later_.empty() ? 0 : later_.back(),
                     "; name another --run_dir, or let later steps be replaced (--overwrite)");
}

void TrainingRun::adopt(TrainerOptions& options) const {
  const bool evaluates = flags_.inspection.evaluate_only;
  const std::optional<CheckpointInfo>& from = evaluates && loaded_ ? loaded_ : found_;
  if (!from) return;
  const auto devices = std::ssize(devices_of_all(flags_));
  const int processes = flags_.group.processes;
  const std::int64_t global = saved_integer(*from, "global_batch");
  const std::int64_t shards = saved_integer(*from, "shards");
  if (global <= 0 || (evaluates && global % devices != 0)) return;
  if (!flags_.given.batch) {
    require<FlagError>(global % devices == 0, written_, ": the run has a global batch of ", global,
                       ", which ", devices, " devices",
                       processes > 1 ? cat(" of ", processes, " processes") : "",
                       " do not divide; use a number that does",
                       processes > 1 ? " (belfry run -n N, --devices)" : " (--devices)");
    options.batch_size = static_cast<int>(global / devices);
  }
  if (flags_.given.shards || options.batch_size * devices != global) return;
  const bool can =
      !any_gpu(options.devices) && options.async != "free" && shards > 0 && shards % devices == 0;
  if (can) options.shards = static_cast<int>(shards);
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

bool TrainingRun::is_own(const std::string& checkpoint) const {
  return directory_ &&
         local_file_system().resolve(checkpoint).starts_with(directory_->path() + "/");
}

void TrainingRun::restore(Trainer& trainer) {
  if (!candidates_.empty()) restore_one_of(trainer);
  if (resumed_from_ && !flags_.run.load.empty())
    return console_.line(
        cat("--load=", flags_.run.load, " has no use: the run resumes from its own checkpoint"));
  load(trainer.session());
}

void TrainingRun::load(Session& session) {
  if (flags_.run.load.empty()) return;
  const LoadedWeights loaded = naming_flag<Error>(cat("--load=", flags_.run.load), [&] {
    return names_ ? load_named_weights(session, flags_.run.load, *names_, flags_.run.partial)
                  : load_weights(session, loaded_checkpoint(flags_.run), flags_.run.load_weights);
  });
  begin_averages(session);
  const auto listed = [](const char* what, const std::vector<std::string>& names) {
    return names.empty() ? "" : cat("; ", what, ": ", names.size(), " (", some_names(names), ")");
  };
  const bool averages = loaded.values == WeightChoice::kAverage;
  console_.line(cat("loaded ", loaded.taken.size(), " weights of ", flags_.run.load,
                    averages ? ", by their moving averages" : "",
                    listed("not in it, so these start anew", loaded.initial),
                    listed("of another shape, so these start anew", loaded.unlike),
                    names_ ? ""
                           : listed("left out, as the model keeps no such weights in checkpoints",
                                    loaded.left_out)));
  if (names_)
    for (const std::string& reason : loaded.left_out) console_.line(cat("left out: ", reason));
}

void TrainingRun::restore_one_of(Trainer& trainer) {
  for (;;) try {
      const std::string& path = candidates_.front();
      const OtherRuns others = flags_.inspection.evaluate_only ? OtherRuns::kIgnore
                               : flags_.run.resume == "auto" || !flags_.inspection.replay.empty()
                                   ? OtherRuns::kRefuse
                                   : OtherRuns::kTell;
      const std::string line = restore_training(trainer, path, others);
      resumed_line_ = line;
      resumed_from_ = trainer.steps();
      if (is_own(path) || path == in_memory_)
        line_positions_ = line_positions(inspect_checkpoint(path));
      return;
    } catch (const OtherRun& error) {
      throw FlagError(with_flag(written_, OtherRun(cat(error.what(), other_flags_of_program()))));
    } catch (const IoError& error) {
      if (candidates_.front() == in_memory_)
        give_up_memory(error);
      else if (candidates_.size() > 1)
        log_warning("resume: skipped a damaged checkpoint: ", error.what());
      if (candidates_.size() == 1) throw IoError(with_flag(written_, error));
      candidates_.erase(candidates_.begin());
    } catch (const NotFoundError& error) {
      if (candidates_.front() == in_memory_) give_up_memory(error);
      find_newest(searched_);  // the run has removed it since
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(with_flag(written_, error));
    }
}

std::string TrainingRun::other_flags_of_program() const try {
  const std::optional<JsonValue> before =
      directory_ ? run_config(directory_->files(), directory_->path()) : std::nullopt;
  std::string text;
  for (const Option<TrainFlags>& option : *flags_.table) {
    if (!before || !option.of_program) continue;
    const std::string then = member_text(*before, option.name),
                      now = member_text(flags_.config, option.name);
    if (then != now && before->find(option.name))
      text += cat("; --", option.name, " was ", shown(then), " and is now ", shown(now));
  }
  return text;
} catch (const Error&) {
  return "";  // the configuration cannot be read, and another error is under way
}

std::optional<JsonValue> TrainingRun::finished(const Trainer& trainer) const {
  if (!directory_ || !resumed_from_) return {};
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
  if (!resumed_line_.empty()) console_.line(resumed_line_);
  if (!directory_) return;
  const JsonValue config = config_of_run(trainer);  // knows the run that is there
  if (replaces_) directory_->clear();
  for (const std::int64_t step : later_) directory_->remove_checkpoint(step);
  directory_->tidy();
  directory_->files().remove(directory_->path_of(kSummaryFile));
  directory_->write(kConfigFile, config.str(2) + "\n");
  directory_->write(kPlacementFile, placement);
  if (restart_) restart_->set_lost_step(newest_step_in(directory_->files(), stats_->file().path()));
  go_on(stats_->file());
  if (hashes_) go_on(hashes_->file());
  if (older_hashes_) go_on(*older_hashes_);
  log_->open();
  warn_of_unsaved(trainer.graph());
  write_graph(trainer.built());
  console_.line(
      cat("run: ", directory_->path(),
          resumed_from_ ? cat(", going on at step ", trainer.steps()) : ", from the start"));
}

// A run that starts anew, or from a checkpoint of the user's choice, is another one to the saves in
// memory.
JsonValue TrainingRun::config_of_run(const Trainer& trainer) {
  JsonValue config = flags_.config;
  if (found_ && !flags_.given.batch)
    config.set("global_batch_size", trainer.built().batches().global_batch());
  config = with_shards(config, trainer.built().options().shards);
  const bool goes_on = resumed_from_ && flags_.run.resume == "auto";
  const std::string before = run_id_of(directory_->path(), directory_->files());
  std::string id = goes_on ? before : "";
  if (id != before) remove_memory_saves(before);
  if (id.empty() && flags_.memory_save_every_steps() > 0) id = new_run_id();
  JsonValue chosen = config.at(kChosen);
  if (!id.empty()) chosen.set(kRunId, id);
  if (const std::string from = began_from(); !from.empty()) chosen.set(kBeganFrom, from);
  config.set(kChosen, std::move(chosen));
  if (memory_saver_) memory_saver_->set_run_id(id);
  return config;
}

// kBeganFrom of this run; "" for initial values.
std::string TrainingRun::began_from() const {
  const bool goes_on = resumed_from_ && (flags_.run.resume == "auto" || is_own(found_->path));
  if (!goes_on && resumed_from_) return written_;
  if (!goes_on) return flags_.run.load.empty() ? "" : cat("--load=", flags_.run.load);
  const std::optional<JsonValue> before = run_config(directory_->files(), directory_->path());
  return before ? member_text(before->at(kChosen), kBeganFrom) : "";
}

// The graph that `belfry checkpoint export` puts into plans. The run trains without it, too. A
// restart repeats a command, so the graph is the same.
void TrainingRun::write_graph(const BuiltTraining& built) try {
  if (restart_ && resumed_from_ && directory_->files().exists(directory_->path_of(kGraphFile)))
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

// Cuts off the lines of steps that are made again.
void TrainingRun::go_on(LineFile& lines) const {
  if (line_positions_)
    lines.go_on(*line_positions_);
  else
    lines.go_on(0);
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
  if (end.error) told = error_json(*end.error, trainer, saved());
  summary.set("total_steps", trainer.progress().total_steps())
      .set("resumed_from_step", resumed_from_ ? JsonValue(*resumed_from_) : JsonValue())
      .set("finished", end.is_trained && !trainer.loop().interrupted())
      .set("exit_code", end.exit_code)
      .set("error", std::move(told));
  if (end.error) log_->line(error_line(*end.error));
  log_->finish();
  directory_->write(kSummaryFile, summary.str(2) + "\n");
}

}  // namespace belfry
