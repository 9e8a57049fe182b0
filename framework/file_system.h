// The seam under everything that Belfry reads from or writes to disk. Tests replace it to inject
// failures at any call; nothing else in the project opens a file.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace belfry {

// A file being written. Data is durable only after sync(). Errors throw IoError naming the file.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  virtual void sync() = 0;
  // Reports what a destructor would have to swallow. Call it last.
  virtual void close() = 0;
};

enum class FileKind { kNone, kFile, kDirectory, kOther };

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual std::unique_ptr<WritableFile> create(const std::string& path) = 0;
  // The whole file. Throws NotFound if there is none, IoError if it cannot be read.
  virtual std::vector<std::byte> read(const std::string& path) = 0;
  virtual bool exists(const std::string& path) = 0;
  // What is there; a link is kOther, whatever it leads to.
  virtual FileKind kind(const std::string& path) = 0;
  // The absolute path without links, "." and "..", as far as it exists.
  virtual std::string resolve(const std::string& path) = 0;
  // Names (not paths) in a directory, sorted.
  virtual std::vector<std::string> list(const std::string& directory) = 0;
  virtual void create_directory(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // A file, a link or an empty directory; nothing happens if there is none.
  virtual void remove(const std::string& path) = 0;
  // Makes durable what was created, renamed and removed in a directory.
  virtual void sync_directory(const std::string& path) = 0;
};

// The disk.
FileSystem& local_file_system();

// Removes what is at `path`, and all below it if that is a directory. Links are not followed.
void remove_tree(FileSystem& files, const std::string& path);

// Writes `text` as the whole content of `path`: to a temporary name beside it, synced, then
// renamed, so that readers see the old file or the new one.
void write_text_file(FileSystem& files, const std::string& path, const std::string& text);

}  // namespace belfry
