#include "belfry/trainers/runs/run_directory.h"

#include <algorithm>
#include <charconv>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"

namespace belfry {
namespace {

constexpr char kCheckpoints[] = "checkpoints";
constexpr char kRunLock[] = "run.lock";
constexpr std::string_view kStep = "step-";
constexpr std::size_t kStepDigits = 8;

std::string name_of_step(std::int64_t step) {
  const std::string digits = cat(step);
  return cat(kStep, std::string(kStepDigits - std::min(kStepDigits, digits.size()), '0'), digits);
}

// Whether a save makes such a `name` beside a checkpoint: its lock, the one that it replaces, or an
// unfinished one.
bool is_left_over(std::string_view name) {
  for (const char* const suffix : {kCheckpointLock, kOldCheckpoint})
    if (name.ends_with(suffix) &&
        step_of_checkpoint(name.substr(0, name.size() - std::string_view(suffix).size())))
      return true;
  const std::size_t dot = name.find('.');
  const std::string_view of = name.substr(0, dot);
  return dot != name.npos && (step_of_checkpoint(of) || of == kLatestLink || of == kBestLink) &&
         is_temporary_name(name, of);
}

void remove_empty(FileSystem& files, const std::string& folder) {
  if (files.kind(folder) == FileKind::kDirectory && files.list(folder).empty())
    files.remove(folder);
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
  const std::vector<std::string> names = files_.list(path_);
  const auto has = [&](std::string_view name) { return std::ranges::count(names, name) > 0; };
  const bool has_run = has(kConfigFile) || has(kCheckpoints);
  require<IoError>(
      has_run ||
          std::ranges::all_of(
              names, [](std::string_view name) { return name == kRunLock || name == kLogFile; }),
      path_, " holds files, but no run (no ", kConfigFile, "); name an empty or a new directory");
  if (!has(kCheckpoints)) made_.insert(made_.begin(), path_of(kCheckpoints));
  files_.create_directory(path_of(kCheckpoints));
  files_.sync_directory(path_);
  files_.sync_directory(path_.substr(0, std::max<std::size_t>(path_.rfind('/'), 1)));
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
  const std::string folder = path_of(kCheckpoints);
  for (const std::string& name : files_.list(folder)) {
    if (!is_left_over(name)) continue;
    try {
      remove_tree(files_, cat(folder, "/", name));
    } catch (const IoError& error) {
      log_warning("what a run left stays behind: ", error.what());
    }
  }
}

// Renames first, so that no reader finds half of a checkpoint.
void RunDirectory::remove_checkpoint(std::int64_t step) {
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

// Removes the checkpoints last: as long as one is there, the run can be gone on with.
void RunDirectory::clear() {
  for (const char* const name : {kSummaryFile, kStatsFile, kHashesFile, kLogFile, kPlacementFile,
                                 kTensorBoardFolder, kTracesFolder, kCheckpoints, kConfigFile})
    if (files_.kind(path_of(name)) != FileKind::kNone) remove_tree(files_, path_of(name));
  files_.create_directory(path_of(kCheckpoints));
}

}  // namespace belfry
