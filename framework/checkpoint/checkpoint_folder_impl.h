// Finds the directory of a checkpoint, and makes a new one.
#pragma once
#include <memory>
#include <string>

#include "belfry/framework/base/file_system.h"

namespace belfry {

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kStateFile[] = "state.safetensors";
inline constexpr char kManifestFile[] = "manifest.json";

// The absolute path of the checkpoint at `path`. Throws NotFoundError if nothing is there, IoError
// if that is no checkpoint.
std::string find_checkpoint(FileSystem& files, const std::string& path);

// A new directory that commit() moves to `path`. Without commit() it vanishes.
class CheckpointFolder {
 public:
  // Makes the directory. Throws IoError if anything but an empty directory is at `path`.
  CheckpointFolder(FileSystem& files, const std::string& path);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  // Absolute.
  const std::string& path() const { return path_; }
  // Creates a file in the directory. Sync it before commit().
  std::unique_ptr<WritableFile> create(const std::string& name);
  // Moves the directory to `path`. Throws IoError if that fails. If only the last sync failed, it
  // is at `path`.
  void commit();

 private:
  FileSystem& files_;
  std::string path_, parent_, temporary_;
  bool committed_ = false;
};

}  // namespace belfry
