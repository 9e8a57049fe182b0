#include "belfry/trainers/runs/run_checkpoints.h"

#include <algorithm>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace {

std::string folder_of(const std::string& run) { return cat(run, "/checkpoints"); }

bool is_checkpoint_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         name.find_first_not_of("0123456789", kPrefix.size()) == name.npos;
}

// Longer numbers are larger ones: a step may have more digits than names are filled up to.
bool is_earlier(const RunCheckpoint& a, const RunCheckpoint& b) {
  return std::pair(a.name.size(), a.name) < std::pair(b.name.size(), b.name);
}

}  // namespace

bool is_run_directory(const std::string& path, FileSystem& files) {
  return files.target_kind(folder_of(path)) == FileKind::kDirectory;
}

std::vector<RunCheckpoint> checkpoints_of_run(const std::string& run, FileSystem& files) {
  const std::string folder = folder_of(run);
  const std::string latest = files.resolve(folder + "/latest"),
                    best = files.resolve(folder + "/best");
  std::vector<RunCheckpoint> result;
  for (const std::string& name : files.list(folder)) {
    if (!is_checkpoint_name(name)) continue;
    const std::string path = cat(folder, "/", name), resolved = files.resolve(path);
    result.push_back({name, path, resolved == latest, resolved == best});
  }
  require<NotFound>(!result.empty(), "the run ", run, " has no checkpoints yet");
  std::ranges::sort(result, is_earlier);
  return result;
}

std::string checkpoint_at(const std::string& path, FileSystem& files) {
  if (!is_run_directory(path, files)) return path;
  const std::string latest = folder_of(path) + "/latest";
  return files.target_kind(latest) == FileKind::kDirectory
             ? latest
             : checkpoints_of_run(path, files).back().path;
}

}  // namespace belfry
