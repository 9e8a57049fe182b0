#include "belfry/trainers/runs/run_checkpoints.h"

#include <charconv>
#include <set>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/some_names.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {
namespace {

std::string folder_of(const std::string& run) { return cat(run, "/checkpoints"); }

std::string link_of(const std::string& run, const char* name) {
  return cat(folder_of(run), "/", name);
}

// What a link leads to. "" for one that leads in a circle: checkpoints are found without links.
std::string target_of(FileSystem& files, const std::string& link) try {
  return files.resolve(link);
} catch (const IoError&) {
  return "";
}

bool leads_to_folder(FileSystem& files, const std::string& link) {
  const std::string target = target_of(files, link);
  return !target.empty() && files.kind(target) == FileKind::kDirectory;
}

std::string checkpoint_of_step(const std::string& run, std::int64_t step, FileSystem& files) {
  const std::string path = checkpoint_in(run, step);
  if (files.target_kind(path) == FileKind::kDirectory) return path;
  std::vector<std::string> names;
  for (const RunCheckpoint& one : checkpoints_of_run(run, files)) names.push_back(one.name);
  throw NotFoundError(
      cat("the run ", run, " has no checkpoint of step ", step, "; it has ", some_names(names)));
}

}  // namespace

bool is_run_directory(const std::string& path, FileSystem& files) {
  return files.target_kind(folder_of(path)) == FileKind::kDirectory;
}

std::string run_of(const std::string& path, FileSystem& files) {
  if (is_run_directory(path, files)) return path;
  const std::string checkpoint = files.resolve(path);
  const std::string folder = checkpoint.substr(0, checkpoint.rfind('/'));
  const std::string run = folder.substr(0, folder.rfind('/'));
  return folder == folder_of(run) ? run : "";
}

std::vector<RunCheckpoint> checkpoints_of_run(const std::string& run, FileSystem& files) {
  const std::string latest = target_of(files, link_of(run, kLatestLink));
  const std::string best = target_of(files, link_of(run, kBestLink));
  std::vector<RunCheckpoint> result;
  for (const std::int64_t step : checkpoints_in(files, run)) {
    const std::string path = checkpoint_in(run, step), resolved = files.resolve(path);
    result.push_back(
        {path.substr(path.rfind('/') + 1), path, resolved == latest, resolved == best});
  }
  require<NotFoundError>(!result.empty(), "the run ", run, " has no checkpoints yet");
  return result;
}

void visit_checkpoints(const std::string& run, const std::function<void(const std::string&)>& visit,
                       FileSystem& files) {
  constexpr int kMostLists = 10;
  std::set<std::string> visited;
  bool any_gone = true;
  for (int list = 0; any_gone && list < kMostLists; ++list) {
    any_gone = false;
    for (const RunCheckpoint& checkpoint : checkpoints_of_run(run, files)) try {
        if (visited.contains(checkpoint.path)) continue;
        visit(checkpoint.path);
        visited.insert(checkpoint.path);
      } catch (const NotFoundError&) {
        any_gone = true;
      }
  }
  require<IoError>(!visited.empty(), "the run ", run,
                   " replaces its checkpoints faster than they can be read; try again later");
}

CheckpointChoice parse_checkpoint_choice(std::string_view text) {
  if (text == "best") return {CheckpointChoice::Kind::kBest};
  if (text == "latest") return {CheckpointChoice::Kind::kLatest};
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  require(error == std::errc() && end == text.data() + text.size() && step >= 0, "'", shown(text),
          "' is no checkpoint of a run: best, latest or a step");
  return {CheckpointChoice::Kind::kStep, step};
}

std::string CheckpointChoice::str() const {
  return kind == Kind::kStep ? cat(step) : kind == Kind::kBest ? "best" : "latest";
}

std::string latest_checkpoint_of(const std::string& run, FileSystem& files) {
  const std::string latest = link_of(run, kLatestLink);
  return leads_to_folder(files, latest) ? latest : checkpoints_of_run(run, files).back().path;
}

std::string checkpoint_at(const std::string& path, std::optional<CheckpointChoice> choice,
                          FileSystem& files) {
  if (!is_run_directory(path, files)) {
    require(!choice, path,
            " is no run directory, so there is no checkpoint of it to choose; leave that out");
    return path;
  }
  const CheckpointChoice wanted = choice.value_or(CheckpointChoice());
  if (wanted.kind == CheckpointChoice::Kind::kStep)
    return checkpoint_of_step(path, wanted.step, files);
  const std::string best = link_of(path, kBestLink);
  const bool has_best = leads_to_folder(files, best);
  if (wanted.kind == CheckpointChoice::Kind::kBest) {
    if (has_best) return best;
    if (choice)
      throw NotFoundError(about_option("best_metric", "the run ", path,
                                       " has no best checkpoint, as it was told no metric to "
                                       "choose one by (",
                                       the_option("best_metric"), ")"));
  }
  return latest_checkpoint_of(path, files);
}

}  // namespace belfry
