#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

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

constexpr char kMoveAway[] = "; nothing was changed: move it away or save elsewhere";

// Returns whether there is a directory.
bool require_no_file(FileSystem& files, const std::string& path) {
  const FileKind kind = files.kind(path);
  require<IoError>(kind == FileKind::kNone || kind == FileKind::kDirectory, path,
                   " is no directory, and a checkpoint would replace it", kMoveAway);
  return kind == FileKind::kDirectory;
}

void require_replaceable(FileSystem& files, const std::string& path, bool whole) {
  if (!require_no_file(files, path)) return;
  const std::string foreign = foreign_name_in(path, files);
  require<IoError>(foreign.empty(), path, " is a directory with '", shown(foreign),
                   "', which is no part of a checkpoint and would be lost", kMoveAway);
  const std::size_t count = files.list(path).size();
  require<IoError>(!whole || count == 0 || count == kFiles.size(), path,
                   " is a directory, but neither a whole checkpoint nor empty", kMoveAway);
}

// Whether saves of another checkpoint P would make and delete such a name beside P.
bool is_name_beside(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::size_t temporary = name.rfind(".tmp-");
  return name.ends_with(kOldCheckpoint) || name.ends_with(kCheckpointLock) ||
         (temporary != name.npos && is_temporary_name(name, name.substr(0, temporary)));
}

bool holds_checkpoint(FileSystem& files, const std::string& directory) {
  return files.kind(cat(directory, "/", kManifestFile)) != FileKind::kNone;
}

// Waits for other processes that save there.
std::unique_ptr<FileLock> lock_of(FileSystem& files, const std::string& path, double patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  for (bool told = false;;) {
    if (auto lock = files.lock(path + kCheckpointLock)) return lock;
    const std::chrono::duration<double> waited = Clock::now() - began;
    require<IoError>(waited.count() < patience, path,
                     ": another process has been saving a checkpoint there for ", patience,
                     " seconds (it has ", path, kCheckpointLock,
                     "); nothing was changed: wait for it, ", "or save elsewhere");
    if (!told && waited.count() > 1) {
      log_info("waiting for another process that saves a checkpoint to ", path);
      told = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

FoundCheckpoint find_checkpoint(FileSystem& files, const std::string& path) {
  const std::string newest = absolute(files, path);
  FoundCheckpoint found{newest};
  const FileKind there = files.kind(newest);
  // An empty directory is no newer checkpoint either; a save would replace it.
  const bool hides_old = there == FileKind::kDirectory && files.list(newest).empty() &&
                         files.kind(newest + kOldCheckpoint) == FileKind::kDirectory;
  if (there == FileKind::kNone || hides_old) found = {newest + kOldCheckpoint, true};
  const FileKind kind = files.kind(found.directory);
  require<NotFoundError>(kind != FileKind::kNone, "there is no checkpoint ", newest, ", nor ",
                         found.directory);
  require<IoError>(kind == FileKind::kDirectory, found.directory,
                   " is no directory; a checkpoint is a directory");
  require<IoError>(files.target_kind(cat(found.directory, "/", kManifestFile)) != FileKind::kNone,
                   found.directory, " holds no ", kManifestFile, ", so it is no checkpoint");
  return found;
}

bool is_checkpoint(const std::string& directory, FileSystem& files) {
  return holds_checkpoint(files, directory) && (files.exists(cat(directory, "/", kModelFile)) ||
                                                files.exists(cat(directory, "/", kStateFile)));
}

std::string foreign_name_in(const std::string& directory, FileSystem& files) {
  for (const std::string& name : files.list(directory))
    if (std::ranges::find(kFiles, name) == kFiles.end()) return name;
  return "";
}

CheckpointFolder::CheckpointFolder(FileSystem& files, const std::string& path, double patience)
    : files_(files),
      path_(absolute(files, path)),
      parent_(parent_of(path_)),
      old_(path_ + kOldCheckpoint) {
  check_place();
  lock_ = lock_of(files_, path_, patience);
  require_replaceable(files_, path_, /*whole=*/true);
  // A crash may have left a part of it.
  require_replaceable(files_, old_, /*whole=*/false);
  temporary_ = temporary_name(path_);
  files_.create_directory(temporary_, path_);
}

CheckpointFolder::~CheckpointFolder() {
  if (committed_) return;
  try {
    remove_tree(files_, temporary_);
  } catch (const std::exception& error) {
    log_warning("an unfinished checkpoint stays behind: ", error.what());
  }
}

void CheckpointFolder::check_place() const {
  const FileKind parent = files_.kind(parent_);
  require<IoError>(parent != FileKind::kNone, "cannot save a checkpoint at ", path_, ": ", parent_,
                   " does not exist");
  require<IoError>(parent == FileKind::kDirectory, "cannot save a checkpoint at ", path_, ": ",
                   parent_, " is no directory");
  require<IoError>(
      files_.kind(cat(parent_, "/", kManifestFile)) == FileKind::kNone,
      "cannot save a checkpoint at ", path_, ": ", parent_,
      " is a checkpoint itself, and the next save there would find it in its way; save "
      "beside it");
  require<IoError>(!is_name_beside(path_), "cannot save a checkpoint at ", path_,
                   ": saves of another checkpoint use and delete names that end with ",
                   kOldCheckpoint, ", ", kCheckpointLock, " or .tmp-N-N; use another name");
  require_no_file(files_, path_);
}

bool CheckpointFolder::replaces() const {
  return holds_checkpoint(files_, path_) || holds_checkpoint(files_, old_);
}

std::unique_ptr<WritableFile> CheckpointFolder::create(const std::string& name) {
  return files_.create(cat(temporary_, "/", name), cat(path_, "/", name));
}

void CheckpointFolder::rehearse() {
  for (const std::string_view name : kFiles) create(std::string(name))->close();
}

void CheckpointFolder::remove_stale() {
  if (!lock_->excludes()) return;
  const std::string base = path_.substr(path_.rfind('/') + 1);
  for (const std::string& name : files_.list(parent_)) {
    const std::string stale = parent_ == "/" ? "/" + name : cat(parent_, "/", name);
    if (stale == temporary_ || !is_temporary_name(name, base)) continue;
    try {
      if (files_.kind(stale) == FileKind::kDirectory && foreign_name_in(stale, files_).empty())
        remove_tree(files_, stale);
    } catch (const IoError& error) {
      log_warning("what a killed process left of a checkpoint stays behind: ", error.what());
    }
  }
}

void CheckpointFolder::commit(bool keep_old) {
  files_.sync_directory(temporary_);
  const bool exists = files_.kind(path_) != FileKind::kNone;
  if (exists && files_.list(path_).empty()) {
    files_.remove(path_);  // not aside: an older checkpoint may be all there is
  } else if (exists) {
    remove_tree(files_, old_);
    files_.sync_directory(parent_);
    files_.rename(path_, old_);
    files_.sync_directory(parent_);
  }
  files_.rename(temporary_, path_);
  committed_ = true;
  files_.sync_directory(parent_);
  if (!keep_old) remove_old();
}

bool CheckpointFolder::settle(bool keep_new) {
  if (!holds_checkpoint(files_, path_) || !holds_checkpoint(files_, old_)) return false;
  if (keep_new)
    remove_old();
  else
    put_back();
  return true;
}

// The new checkpoint becomes the temporary directory, which is empty and goes with this folder.
// Between the renames a restore reads the old one where it is.
void CheckpointFolder::put_back() {
  files_.rename(path_, temporary_);
  files_.sync_directory(parent_);
  files_.rename(old_, path_);
  files_.sync_directory(parent_);
}

void CheckpointFolder::remove_old() {
  try {
    if (files_.kind(old_) == FileKind::kNone) return;
    // Somebody may have put it there since this save began.
    const std::string foreign = foreign_name_in(old_, files_);
    require<IoError>(foreign.empty(), old_, " has '", shown(foreign),
                     "', which is no part of a checkpoint; move it away");
    remove_tree(files_, old_);
  } catch (const IoError& error) {
    log_warning("the checkpoint ", path_,
                " is saved, but the one before stays behind: ", error.what());
  }
}

}  // namespace belfry
