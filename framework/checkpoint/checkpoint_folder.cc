#include <algorithm>
#include <array>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/checkpoint/checkpoint_folder_impl.h"

namespace belfry {
namespace {

constexpr std::array<std::string_view, 3> kFiles = {kModelFile, kStateFile, kManifestFile};

std::string absolute(FileSystem& files, std::string path) {
  require(!path.empty(), "the path of a checkpoint is empty");
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return files.resolve(path);
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 || slash == path.npos ? "/" : path.substr(0, slash);
}

void require_free(FileSystem& files, const std::string& path) {
  const FileKind kind = files.kind(path);
  require<IoError>(
      kind == FileKind::kNone || (kind == FileKind::kDirectory && files.list(path).empty()), path,
      " is there already, and a checkpoint replaces nothing; save elsewhere, or "
      "remove it first");
}

}  // namespace

std::string find_checkpoint(FileSystem& files, const std::string& path) {
  std::string directory = absolute(files, path);
  const FileKind kind = files.kind(directory);
  require<NotFoundError>(kind != FileKind::kNone, "there is no checkpoint ", directory);
  require<IoError>(kind == FileKind::kDirectory, directory,
                   " is no directory; a checkpoint is a directory");
  require<IoError>(files.target_kind(cat(directory, "/", kManifestFile)) != FileKind::kNone,
                   directory, " holds no ", kManifestFile, ", so it is no checkpoint");
  return directory;
}

bool is_checkpoint(const std::string& directory, FileSystem& files) {
  const auto has = [&](const char* name) { return files.exists(cat(directory, "/", name)); };
  return has(kManifestFile) && (has(kModelFile) || has(kStateFile));
}

std::string foreign_name_in(const std::string& directory, FileSystem& files) {
  for (const std::string& name : files.list(directory))
    if (std::ranges::find(kFiles, name) == kFiles.end()) return name;
  return "";
}

CheckpointFolder::CheckpointFolder(FileSystem& files, const std::string& path)
    : files_(files), path_(absolute(files, path)), parent_(parent_of(path_)) {
  require<IoError>(files_.kind(parent_) == FileKind::kDirectory, "cannot save a checkpoint at ",
                   path_, ": ", parent_, " is no directory");
  require_free(files_, path_);
  temporary_ = temporary_name(path_);
  files_.create_directory(temporary_);
}

CheckpointFolder::~CheckpointFolder() {
  if (committed_) return;
  try {
    remove_tree(files_, temporary_);
  } catch (const std::exception& error) {
    log_warning("an unfinished checkpoint stays behind: ", error.what());
  }
}

std::unique_ptr<WritableFile> CheckpointFolder::create(const std::string& name) {
  return files_.create(cat(temporary_, "/", name));
}

void CheckpointFolder::commit() {
  files_.sync_directory(temporary_);
  files_.rename(temporary_, path_);
  committed_ = true;
  files_.sync_directory(parent_);
}

}  // namespace belfry
