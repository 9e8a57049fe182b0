// How the directory of a checkpoint is found and replaced.
#pragma once
#include <string>
#include <string_view>

#include "belfry/framework/file_system.h"

namespace belfry {

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kStateFile[] = "state.safetensors";
inline constexpr char kManifestFile[] = "manifest.json";

struct FoundCheckpoint {
  std::string directory;  // absolute
  bool is_old = false;
};

// What to read: `path`, or `path`.old if there is none. Throws NotFound if there is neither,
// IoError if it is no checkpoint.
FoundCheckpoint find_checkpoint(FileSystem& files, const std::string& path);

// A new directory that is to take the place of `path`. Without commit() it vanishes.
class CheckpointFolder {
 public:
  // Checks `path` as check_checkpoint_path says, makes the directory.
  CheckpointFolder(FileSystem& files, const std::string& path);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  // Where the new files go. They must be synced before commit().
  const std::string& directory() const { return temporary_; }
  // Removes the directories that killed processes left: those beside `path` that have a
  // temporary_name() of it, are no links, and hold nothing but files of a checkpoint. What cannot
  // be removed is logged and stays.
  void remove_stale();
  // Puts the directory at `path`. Throws IoError if that fails; the one that was there is at `path`
  // or `path`.old then. If only the last sync failed, the new one is at `path`.
  void commit();

 private:
  void check() const;

  FileSystem& files_;
  std::string path_, parent_, old_, temporary_;
  bool committed_ = false;
};

}  // namespace belfry
