// The seam under everything that Belfry reads from or writes to disk. Tests replace it to inject
// failures at any call; nothing else in the project opens a file.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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

// kOther: a device, a pipe, a socket; where links are not followed, a link.
enum class FileKind { kNone, kFile, kDirectory, kOther };

// All throw IoError naming the path, where nothing else is said. Links on the way to the last name
// of a path are followed by all, the last name itself where it is said.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Makes a file, or empties the one that is there; opens a device or pipe as it is. The directory
  // must exist. Follows a link, also one that leads to nothing yet.
  virtual std::unique_ptr<WritableFile> create(const std::string& path) = 0;
  // The whole file. Throws NotFound if there is none, IoError if it cannot be read. Follows a link.
  virtual std::vector<std::byte> read(const std::string& path) = 0;
  // Whether something is there; follows a link, so a dangling one is nothing. Never throws: what
  // cannot be looked up is taken for nothing. Where that matters, ask for the kind.
  virtual bool exists(const std::string& path) = 0;
  // What is there. A link is kOther, whatever it leads to.
  virtual FileKind kind(const std::string& path) = 0;
  // What the path leads to. Follows a link; kNone if it dangles, that is, if it leads to nothing.
  virtual FileKind target_kind(const std::string& path) = 0;
  // The absolute path without links, "." and "..". It need not exist: from the first name that is
  // not there on, names are kept and ".." takes off the one before. A dangling link gives what it
  // would lead to, which create() makes. Throws IoError for links that lead in a circle.
  virtual std::string resolve(const std::string& path) = 0;
  // Names (not paths) in a directory, sorted.
  virtual std::vector<std::string> list(const std::string& directory) = 0;
  // Makes parents, too. Nothing happens if the directory is there; IoError if something else is.
  virtual void create_directory(const std::string& path) = 0;
  // Puts a file, or a directory and what is in it, where a file or an empty directory may be, at
  // once: others see that one or this one. IoError, and no change, if a directory with content is
  // at `to`, or one of them is a directory and the other is none. Both are in one directory. Links
  // are renamed and replaced themselves.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // A file, a link itself or an empty directory; nothing happens if there is none.
  virtual void remove(const std::string& path) = 0;
  // Makes durable what was created, renamed and removed in a directory, not what its files hold.
  virtual void sync_directory(const std::string& path) = 0;
};

// The disk.
FileSystem& local_file_system();

// Removes what is at `path`, and all below it if that is a directory. Links are not followed.
void remove_tree(FileSystem& files, const std::string& path);

// A name beside `path` for what is to replace it, PATH.tmp-<process>-<count>. No other call gets
// it, nor any other process of this machine that runs now.
std::string temporary_name(const std::string& path);
// Whether `name` is of this form, with digits for process and count: what another process may have
// left.
bool is_temporary_name(std::string_view name, std::string_view path);

// Writes `text` as the whole content of `path`: to a temporary_name(), synced, then renamed, so
// that readers see the old file or the new one, and of two writers the last wins. If that fails,
// the old file remains and the temporary one goes. A link is replaced, not followed.
void write_text_file(FileSystem& files, const std::string& path, const std::string& text);

}  // namespace belfry
