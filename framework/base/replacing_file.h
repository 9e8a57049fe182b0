// Writes files that replace others when they are complete.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "belfry/framework/base/file_system.h"

namespace belfry {

// A file that replaces the one at `path` when it is complete; one that is not is removed. So
// readers never see a part, and the old content survives an error. Throws as FileSystem and
// WritableFile do.
class ReplacingFile {
 public:
  ReplacingFile(FileSystem& files, std::string path);
  ~ReplacingFile();
  ReplacingFile(const ReplacingFile&) = delete;
  ReplacingFile& operator=(const ReplacingFile&) = delete;

  void append(std::span<const std::byte> bytes);
  std::int64_t size() const { return size_; }  // appended so far
  // All is on the disk: of several files, each is completed before the first replaces another.
  void complete();
  // Completes it, if that was not done, and takes the place at the path.
  void replace();

 private:
  FileSystem& files_;
  const std::string path_, temporary_;
  std::unique_ptr<WritableFile> file_;  // null: complete
  std::int64_t size_ = 0;
  bool replaced_ = false;
};

}  // namespace belfry
