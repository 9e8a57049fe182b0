#include "belfry/trainers/runs/run_checkpoints.h"

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

}  // namespace

bool is_run_directory(const std::string& path, FileSystem& files) {
  return files.target_kind(folder_of(path)) == FileKind::kDirectory;
}

std::vector<RunCheckpoint> checkpoints_of_run(const std::string& run, FileSystem& files) {
  const std::string latest = files.resolve(link_of(run, kLatestLink));
  const std::string best = files.resolve(link_of(run, kBestLink));
  std::vector<RunCheckpoint> result;
  for (const std::int64_t step : checkpoints_in(files, run)) {
    const std::string path = checkpoint_in(run, step), resolved = files.resolve(path);
    result.push_back(
        {path.substr(path.rfind('/') + 1), path, resolved == latest, resolved == best});
  }
  require<NotFoundError>(!result.empty(), "the run ", run, " has no checkpoints yet");
  return result;
}

std::string checkpoint_at(const std::string& path, FileSystem& files) {
  if (!is_run_directory(path, files)) return path;
  const std::string latest = link_of(path, kLatestLink);
  return files.target_kind(latest) == FileKind::kDirectory
             ? latest
             : checkpoints_of_run(path, files).back().path;
}

}  // namespace belfry
