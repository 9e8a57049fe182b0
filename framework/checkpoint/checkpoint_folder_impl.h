// Finds and replaces the directory of a checkpoint.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "belfry/framework/base/file_system.h"

namespace belfry {

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kStateFile[] = "state.safetensors";
inline constexpr char kManifestFile[] = "manifest.json";

struct FoundCheckpoint {
  std::string directory;  // absolute
  bool is_old = false;
};

// Finds what to read: `path`, or `path`.belfry-old if there is none. Throws NotFoundError if there
// is neither, IoError if it is no checkpoint.
FoundCheckpoint find_checkpoint(FileSystem& files, const std::string& path);

// A new directory that is to replace `path`. It vanishes without commit(). As long as this lives,
// no other process saves there.
class CheckpointFolder {
 public:
  // Waits for its turn, at most `patience` seconds; checks `path` as check_checkpoint_path says;
  // makes the directory.
  CheckpointFolder(FileSystem& files, const std::string& path, double patience);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  // Absolute.
  const std::string& path() const { return path_; }
  // Whether there is a checkpoint that commit() takes away.
  bool replaces() const;
  // Makes a new file of the directory, with the permissions of the one that it replaces. Sync it
  // before commit().
  std::unique_ptr<WritableFile> create(const std::string& name);
  // Makes all files, to find out whether that is possible.
  void rehearse();
  // Removes the directories that killed processes left. They are beside `path`, have a
  // temporary_name() of it, are no links, and hold nothing but files of a checkpoint. As this
  // process has the lock, no other process uses them. It logs directories that it cannot remove.
  void remove_stale();
  // Moves the directory to `path`. Throws IoError if that fails; then the one before is at `path`
  // or `path`.belfry-old. If only the last sync failed, the new one is at `path`. `keep_old`: the
  // one before stays at `path`.belfry-old.
  void commit(bool keep_old = false);
  // To be called instead of commit(). Removes what an earlier commit() kept, or puts it back at
  // `path`. Returns whether there is such a one.
  bool settle(bool keep_new);

 private:
  void check_place() const;
  void put_back();
  void remove_old();

  FileSystem& files_;
  std::string path_, parent_, old_, temporary_;
  std::unique_ptr<FileLock> lock_;
  bool committed_ = false;
};

}  // namespace belfry
