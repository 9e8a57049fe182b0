#include "belfry/trainers/runs/run_directory.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/trainers/runs/event_file.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {
namespace {

constexpr char kCheckpoints[] = "checkpoints";
constexpr std::string_view kStep = "step-";
constexpr std::size_t kStepDigits = 8;

std::string name_of_step(std::int64_t step) {
  const std::string digits = cat(step);
  return cat(kStep, std::string(kStepDigits - std::min(kStepDigits, digits.size()), '0'), digits);
}

// Whether a killed process may have left a file of this name next to a checkpoint.
bool is_left_of_save(std::string_view name) {
  const std::size_t dot = name.find('.');
  const std::string_view of = name.substr(0, dot);
  return dot != name.npos && (step_of_checkpoint(of) || of == kLatestLink || of == kBestLink) &&
         is_temporary_name(name, of);
}

// Whether a killed process may have left such a file where it wrote config.json, for example.
bool is_left_of_write(std::string_view name) {
  return std::ranges::any_of(
      std::to_array<std::string_view>(
          {kConfigFile, kPlacementFile, kGraphFile, kSummaryFile, kDifferenceFile}),
      [&](std::string_view file) { return is_temporary_name(name, file); });
}

// Whether `name` is "step-00000100.json".
bool is_trace(std::string_view name) {
  constexpr std::string_view kEnd = ".json";
  return name.ends_with(kEnd) && step_of_checkpoint(name.substr(0, name.size() - kEnd.size()));
}

// Whether a killed process may have left a file of this name next to traces.
bool is_left_of_trace(std::string_view name) {
  const std::string_view trace = name.substr(0, name.find(".tmp-"));
  return is_trace(trace) && is_temporary_name(name, trace);
}

void remove_empty(FileSystem& files, const std::string& folder) {
  if (files.kind(folder) == FileKind::kDirectory && files.list(folder).empty())
    files.remove(folder);
}

// Removes the files that a run has written into a folder, and the folder, if it is empty then.
template <class F>
void remove_files_of_run(FileSystem& files, const std::string& folder, const F& is_of_run) {
  if (files.target_kind(folder) != FileKind::kDirectory) return;
  for (const std::string& name : files.list(folder)) {
    const std::string path = cat(folder, "/", name);
    if (is_of_run(name) && files.kind(path) == FileKind::kFile) files.remove(path);
  }
  remove_empty(files, folder);
}

void require_own(FileSystem& files, const std::string& checkpoint) {
  if (files.kind(checkpoint) != FileKind::kDirectory) return;
  const std::string foreign = foreign_name_in(checkpoint, files);
  require<IoError>(foreign.empty(), checkpoint, " has '", shown(foreign),
                   "', which no run has written; move it away");
}

// What a save left may be a file, a link or a directory.
void remove_left_over(FileSystem& files, const std::string& path) try {
  require_own(files, path);
  remove_tree(files, path);
} catch (const IoError& error) {
  log_warning("what a run left stays there: ", error.what());
}

}  // namespace

std::optional<std::int64_t> step_of_checkpoint(std::string_view name) {
  std::int64_t step = 0;
  if (!name.starts_with(kStep)) return {};
  const std::string_view digits = name.substr(kStep.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || name != name_of_step(step))
    return {};
  return step;
}

std::vector<std::int64_t> checkpoints_in(FileSystem& files, const std::string& path) {
  const std::string folder = cat(path, "/", kCheckpoints);
  std::vector<std::int64_t> steps;
  if (files.target_kind(folder) != FileKind::kDirectory) return steps;
  for (const std::string& name : files.list(folder))
    if (const auto step = step_of_checkpoint(name)) steps.push_back(*step);
  std::ranges::sort(steps);
  return steps;
}

std::string checkpoint_in(const std::string& path, std::int64_t step) {
  return cat(path, "/", kCheckpoints, "/", name_of_step(step));
}

// Other programs have files of this name, too.
std::optional<JsonValue> run_config(FileSystem& files, const std::string& path) {
  const std::string file = cat(path, "/", kConfigFile);
  if (files.target_kind(file) != FileKind::kFile) return {};
  const std::vector<std::byte> bytes = files.read(file, kMostJsonBytes);
  try {
    JsonValue config =
        JsonValue::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const bool is_of_run = config.find("devices") && config.at(kChosen).find("trainer");
    return is_of_run ? std::optional(std::move(config)) : std::nullopt;
  } catch (const InvalidArgument&) {
    return {};
  }
}

void reserve_run(OutputFiles& outputs, const std::string& written, const std::string& path) {
  outputs.reserve_run(
      written, path,
      {kConfigFile, kStatsFile, kHashesFile, kLogFile, kPlacementFile, kGraphFile, kSummaryFile,
       kDifferenceFile, kTensorBoardFolder, kTracesFolder, kCheckpoints, kRunLock});
}

RunDirectory::RunDirectory(const std::string& path, FileSystem& files)
    : files_(files), path_(files.resolve(path)) {
  for (std::string folder = path_; files_.kind(folder) == FileKind::kNone;
       folder = folder.substr(0, std::max<std::size_t>(folder.rfind('/'), 1)))
    made_.push_back(folder);
  files_.create_directory(path_);
  lock_ = files_.lock(path_of(kRunLock));
  require<Error>(lock_ != nullptr, path_,
                 " is the run directory of a program that is running; wait for its end, or name "
                 "another directory");
  require_run();
  if (files_.kind(path_of(kCheckpoints)) == FileKind::kNone)
    made_.insert(made_.begin(), path_of(kCheckpoints));
  files_.create_directory(path_of(kCheckpoints));
  files_.sync_directory(path_);
  files_.sync_directory(path_.substr(0, std::max<std::size_t>(path_.rfind('/'), 1)));
}

// A run that was killed before it wrote config.json, or lost it when the machine went down, is one.
void RunDirectory::require_run() const {
  const std::vector<std::string> names = files_.list(path_);
  if (std::ranges::all_of(names, [&](const auto& name) { return may_hold_before_a_run(name); }))
    return;
  const bool has_config = std::ranges::count(names, kConfigFile) > 0;
  const bool is_run = has_config ? run_config(files_, path_).has_value()
                                 : std::ranges::any_of(checkpoints(), [&](std::int64_t step) {
                                     return is_checkpoint(checkpoint_path(step), files_);
                                   });
  require<IoError>(is_run, path_, " holds files, but no run (",
                   has_config ? "no run has written its " : "no ", kConfigFile,
                   "); name an empty or a new directory");
}

bool RunDirectory::may_hold_before_a_run(const std::string& name) const {
  if (name == kRunLock || name == kLogFile || is_left_of_write(name)) return true;
  const std::string folder = path_of(name);
  return name == kCheckpoints && files_.target_kind(folder) == FileKind::kDirectory &&
         std::ranges::all_of(files_.list(folder), is_left_of_save);
}

// Removes the lock after the rest of the folder, because others take the folder by its lock.
RunDirectory::~RunDirectory() {
  try {
    for (const std::string& folder : made_) {
      if (folder == path_) lock_.reset();
      remove_empty(files_, folder);
    }
  } catch (...) {  // an empty folder stays behind
  }
}

std::string RunDirectory::path_of(std::string_view name) const { return cat(path_, "/", name); }

std::string RunDirectory::checkpoint_path(std::int64_t step) const {
  return checkpoint_in(path_, step);
}

bool RunDirectory::is_empty() const {
  return !files_.exists(path_of(kConfigFile)) && checkpoints().empty();
}

std::vector<std::int64_t> RunDirectory::checkpoints() const {
  return checkpoints_in(files_, path_);
}

void RunDirectory::tidy() {
  const auto tidy_folder = [&](const std::string& folder, auto is_left_over) {
    if (files_.target_kind(folder) != FileKind::kDirectory) return;
    for (const std::string& name : files_.list(folder))
      if (is_left_over(name)) remove_left_over(files_, cat(folder, "/", name));
  };
  tidy_folder(path_of(kCheckpoints), is_left_of_save);
  tidy_folder(path_, is_left_of_write);
  tidy_folder(path_of(kTracesFolder), is_left_of_trace);
  const std::string best = cat(path_of(kCheckpoints), "/", kBestLink);
  if (files_.kind(best) == FileKind::kOther && !files_.exists(best)) files_.remove(best);
}

void RunDirectory::require_removable(std::span<const std::int64_t> steps) const {
  for (const std::int64_t step : steps) require_own(files_, checkpoint_path(step));
}

// Renames first, so that no reader finds half of a checkpoint.
void RunDirectory::remove_checkpoint(std::int64_t step) {
  require_removable({&step, 1});
  const std::string gone = temporary_name(checkpoint_path(step));
  files_.rename(checkpoint_path(step), gone);
  remove_tree(files_, gone);
}

void RunDirectory::point(std::string_view name, std::int64_t step) {
  point_link(files_, cat(path_of(kCheckpoints), "/", name), name_of_step(step));
}

void RunDirectory::write(std::string_view name, const std::string& text) {
  write_text_file(files_, path_of(name), text);
}

void RunDirectory::write_trace(std::int64_t step, const std::string& text) {
  files_.create_directory(path_of(kTracesFolder));
  write(cat(kTracesFolder, "/", name_of_step(step), ".json"), text);
}

std::optional<std::string> RunDirectory::read(std::string_view name) const {
  if (!files_.exists(path_of(name))) return {};
  const std::vector<std::byte> bytes = files_.read(path_of(name));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Removes the checkpoints last: as long as one is there, the run can be resumed.
void RunDirectory::clear() {
  const std::vector<std::int64_t> steps = checkpoints();
  require_removable(steps);
  for (const char* const name : {kSummaryFile, kStatsFile, kHashesFile, kLogFile, kPlacementFile,
                                 kGraphFile, kDifferenceFile})
    files_.remove(path_of(name));
  const std::string board = path_of(kTensorBoardFolder);
  for (const char* const part : {"train", "validation"})
    remove_files_of_run(files_, cat(board, "/", part), is_event_file);
  remove_empty(files_, board);
  tidy();
  remove_files_of_run(files_, path_of(kTracesFolder), is_trace);
  for (const std::int64_t step : steps) remove_checkpoint(step);
  for (const char* const link : {kLatestLink, kBestLink}) {
    const std::string path = cat(path_of(kCheckpoints), "/", link);
    if (files_.kind(path) == FileKind::kOther) files_.remove(path);
  }
  files_.remove(path_of(kConfigFile));
}

}  // namespace belfry
