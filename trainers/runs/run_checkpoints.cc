#include "belfry/trainers/runs/run_checkpoints.h"

#include <set>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
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

}  // namespace

bool is_run_directory(const std::string& path, FileSystem& files) {
  return files.target_kind(folder_of(path)) == FileKind::kDirectory;
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

std::string checkpoint_at(const std::string& path, FileSystem& files) {
  if (!is_run_directory(path, files)) return path;
  const std::string latest = link_of(path, kLatestLink);
  const std::string target = target_of(files, latest);
  return !target.empty() && files.kind(target) == FileKind::kDirectory
             ? latest
             : checkpoints_of_run(path, files).back().path;
}

}  // namespace belfry
