#include "belfry/trainers/program/run_start.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/some_names.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/fingerprint_difference.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/core/training_sizes.h"
#include "belfry/trainers/names/named_weights.h"
#include "belfry/trainers/optimizers/weight_averages.h"
#include "belfry/trainers/program/flag_conflicts_impl.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/program/program_processes.h"
#include "belfry/trainers/runs/find_in_memory.h"
#include "belfry/trainers/runs/memory_folders.h"
#include "belfry/trainers/runs/run_checkpoints.h"
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

// A number of samples, shards or devices; 0: the checkpoint has none.
std::int64_t saved_count(const CheckpointInfo& info, std::string_view name) {
  constexpr std::int64_t kMostCount = std::numeric_limits<int>::max();
  const std::int64_t count = saved_integer(info, name);
  require<IoError>(count >= 0 && count <= kMostCount, info.path, "/manifest.json: ", name, " is ",
                   count, ", which no run has");
  return count;
}

}  // namespace

RunStart::RunStart(const TrainFlags& flags, Console& console, RunDirectory* directory)
    : flags_(flags), console_(console), directory_(directory) {
  if (directory_) check_replacing();
  find();
  if (directory_) require_room();
  if (replaces_run_ || !later_.empty())
    naming_flag<FlagError>("--overwrite", [&] {
      directory_->require_removable(replaces_run_ ? directory_->checkpoints() : later_);
    });
  if (found_)
    needs_ = needs_in(found_->extra);
  else if (!flags.run.load.empty())
    look_at_loaded();
}

void RunStart::check_replacing() {
  if (flags_.run.resume != "never" || directory_->is_empty()) return;
  require<FlagError>(flags_.files.overwrite, "--resume=never: ", directory_->path(),
                     " holds a run already; name another directory, resume that run "
                     "(--resume=auto), or let it be replaced (--overwrite)");
  replaces_run_ = true;
}

void RunStart::find() {
  const std::string& resume = flags_.run.resume;
  if (resume == "never" || (resume == "auto" && flags_.run.directory.empty())) return;
  const bool automatic = resume == "auto";
  written_ = automatic ? cat("--run_dir=", flags_.run.directory) : cat("--resume=", resume);
  if (automatic && !flags_.plans() && !flags_.trainer.evaluates_only)
    in_memory_ = find_in_memory(flags_.trainer.session.processes.get(), flags_.run.directory);
  const bool on_disk = !automatic || has_checkpoints(flags_.run.directory);
  if (!on_disk && in_memory_.empty()) return check_new_start();
  if (on_disk) find_on_disk(automatic ? flags_.run.directory : resume);
  if (!in_memory_.empty()) find_saved_in_memory();
}

// A save in memory serves, too, where none on disk can be read.
void RunStart::find_on_disk(const std::string& path) try {
  find_newest(path);
} catch (const IoError& error) {
  if (in_memory_.empty()) throw;
  log_warning("resume: no checkpoint on disk can be read, so the run needs its save in memory: ",
              error.what());
  disk_damage_ = error.what();
}

// A save in memory comes before those on disk, which are older.
void RunStart::find_saved_in_memory() try {
  found_ = inspect_checkpoint(in_memory_);
  candidates_.insert(candidates_.begin(), in_memory_);
} catch (const Error& error) {
  give_up_memory(error);
  look_for_others();
}

// A lone process resumes from disk then, or starts anew: a restore that fails changes nothing.
void RunStart::leave_memory(const Error& error) {
  give_up_memory(error);
  candidates_.erase(candidates_.begin());
  look_for_others();
}

// What is damaged on disk may be of use to its owner, so no run replaces it.
void RunStart::look_for_others() const {
  if (!candidates_.empty()) return;
  require<IoError>(disk_damage_.empty(), disk_damage_);
  check_new_start();
}

// All processes resume from the same step, so that others cannot resume from their saves now. They
// can at the next start, which sends one of those to this host.
void RunStart::give_up_memory(const Error& error) {
  remove_damaged_save(std::exchange(in_memory_, ""));
  const std::string why = cat("a damaged save in memory, which is now removed: ", error.what());
  require<IoError>(!flags_.trainer.session.processes, written_, ": ", why,
                   "; start the same command again");
  log_warning("resume: skipped ", why);
}

// A run that is still training removes listed checkpoints and saves others. If one is gone, they
// are listed again.
void RunStart::find_newest(const std::string& path) {
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
std::string RunStart::look_for_newest() {
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
void RunStart::check_new_start() const {
  if (!directory_) return;
  const std::string log = directory_->read(kStatsFile).value_or("");
  const auto lines = std::ranges::count(log, '\n');
  require<IoError>(!ended_well(directory_->read(kSummaryFile)), written_, ": ", directory_->path(),
                   " holds a run that has ended, but none of its checkpoints; put one back, name "
                   "another directory, or replace the run (--resume=never --overwrite), with ",
                   lines, " lines of ", kStatsFile);
  if (lines > 0)
    log_warning(written_, ": ", directory_->path(),
                " has no checkpoint to resume from; the run starts anew and replaces ", lines,
                lines == 1 ? " line of " : " lines of ", kStatsFile);
}

// A run may resume from a checkpoint that the user named. Other contents of the directory would
// then be lost, or be taken for the newest state.
void RunStart::require_room() {
  if (!found_ || flags_.run.resume == "auto" || directory_->is_empty()) return;
  if (!is_own(found_->path)) {
    require<FlagError>(flags_.files.overwrite, written_, ": ", directory_->path(),
                       " holds another run already; name another --run_dir, or let that run be "
                       "replaced (--overwrite)");
    replaces_run_ = true;
    return;
  }
  const std::int64_t from = position_in(*found_).steps;
  for (const std::int64_t step : directory_->checkpoints())
    if (step > from) later_.push_back(step);
  require<FlagError>(later_.empty() || flags_.files.overwrite, written_, " goes back to step ",
                     from, ", but ", directory_->path(), " has step ",
                     later_.empty() ? 0 : later_.back(),
                     "; name another --run_dir, or let later steps be replaced (--overwrite)");
}

void RunStart::adopt(TrainerOptions& options) const {
  if (options.evaluates_only) return adopt_batch(options);
  const std::optional<CheckpointInfo>& from = found_;
  if (!from) return;
  const auto devices = std::ssize(devices_of_all(flags_.trainer));
  const int processes = flags_.group.processes;
  const std::int64_t global = saved_integer(*from, "global_batch");
  const std::int64_t shards = saved_integer(*from, "shards");
  if (global <= 0) return;
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

// Takes the batches of the run whose weights are evaluated, unless flags give others. CPUs stand
// for as many devices as the batches need; GPUs promise no equal bits.
void RunStart::adopt_batch(TrainerOptions& options) const {
  const std::optional<CheckpointInfo>& from = loaded_ ? loaded_ : found_;
  const std::vector<DeviceSpec> devices = options.devices;
  const std::int64_t processes = flags_.group.processes, all = std::ssize(devices) * processes;
  const std::int64_t saved = from ? saved_count(*from, "global_batch") : 0;
  EvaluatedBatch batch{
      .samples = flags_.global_batch_size > 0 ? flags_.global_batch_size : options.batch_size * all,
      .shards = options.shards};
  if (saved > 0 && !flags_.given.batch) batch.samples = saved;
  if (batch.samples == saved) {
    if (!flags_.given.shards) batch.shards = saved_count(*from, "shards");
    batch.towers = std::max<std::int64_t>(saved_count(*from, "devices"), 1);
    const JsonValue* const dependence = from->extra.find("device_dependence");
    batch.needs_towers = dependence && !dependence->text().empty();
    if (batch.shards % batch.towers != 0 || batch.samples % batch.towers != 0)
      batch.towers = 1;  // other shards than those of the run
  }
  if (any_gpu(devices)) batch = {.samples = batch.samples};
  const std::int64_t towers = towers_of_evaluation(batch, all);
  require<FlagError>(towers % processes == 0, "--evaluate_only: ", processes,
                     " processes cannot share a global batch of ", batch.samples,
                     batch.shards > 0 ? cat(" in ", batch.shards, " shards") : "",
                     batch.samples == saved ? cat(", as ", from->path, " had it,") : "",
                     " with equal results; use a number of processes that divides ",
                     towers_of_evaluation(batch, batch.samples),
                     " (belfry run -n N), with any --devices");
  options.shards = static_cast<int>(batch.shards);
  options.batch_size = static_cast<int>(batch.samples / towers);
  const auto own = static_cast<std::size_t>(towers / processes);
  options.devices.resize(std::min(own, devices.size()));
  if (own > devices.size()) options.devices.clear();
  while (options.devices.size() < own)
    options.devices.push_back(DeviceSpec::local("CPU", static_cast<int>(options.devices.size())));
}

// Refuses what cannot be loaded, before anything is built.
void RunStart::look_at_loaded() {
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
void RunStart::require_needed(const std::string& name, const std::string& value) const {
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

bool RunStart::is_own(const std::string& checkpoint) const {
  return directory_ &&
         local_file_system().resolve(checkpoint).starts_with(directory_->path() + "/");
}

void RunStart::restore(Trainer& trainer) {
  if (!candidates_.empty()) restore_one_of(trainer);
  if (!trainer.session().intact()) trainer.session().restore({}, 0);  // first values
  if (resumed_from_ && !flags_.run.load.empty())
    return console_.line(
        cat("--load=", flags_.run.load, " has no use: the run resumes from its own checkpoint"));
  load(trainer.session());
}

void RunStart::load(Session& session) {
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

void RunStart::restore_one_of(Trainer& trainer) {
  while (!candidates_.empty()) try {
      const std::string& path = candidates_.front();
      const bool refuses = flags_.run.resume == "auto" || !flags_.inspection.replay.empty();
      const OtherRuns others = refuses ? OtherRuns::kRefuse : OtherRuns::kTell;
      const std::string line = restore_training(trainer, path, others);
      resumed_line_ = line;
      resumed_from_ = trainer.steps();
      if (is_own(path) || path == in_memory_)
        line_positions_ = line_positions(inspect_checkpoint(path));
      return;
    } catch (const OtherRun& error) {
      throw FlagError(with_flag(written_, OtherRun(cat(error.what(), other_flags_of_program()))));
    } catch (const IoError& error) {
      if (candidates_.front() == in_memory_) {
        leave_memory(error);
        continue;
      }
      if (candidates_.size() == 1) throw IoError(with_flag(written_, error));
      log_warning("resume: skipped a damaged checkpoint: ", error.what());
      candidates_.erase(candidates_.begin());
    } catch (const NotFoundError& error) {
      if (candidates_.front() == in_memory_)
        leave_memory(error);
      else
        find_newest(searched_);  // the run has removed it since
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(with_flag(written_, error));
    }
}

std::string RunStart::other_flags_of_program() const try {
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

// kBeganFrom of this run; "" for initial values.
std::string RunStart::began_from() const {
  const bool goes_on = resumed_from_ && (flags_.run.resume == "auto" || is_own(found_->path));
  if (!goes_on && resumed_from_) return written_;
  if (!goes_on) return flags_.run.load.empty() ? "" : cat("--load=", flags_.run.load);
  const std::optional<JsonValue> before = run_config(directory_->files(), directory_->path());
  return before ? member_text(before->at(kChosen), kBeganFrom) : "";
}

void RunStart::remove_replaced() {
  if (replaces_run_) directory_->clear();
  for (const std::int64_t step : later_) directory_->remove_checkpoint(step);
}

void RunStart::cut_lines(LineFile& lines) const {
  if (line_positions_)
    lines.go_on(*line_positions_);
  else
    lines.go_on(0);
}

}  // namespace belfry
