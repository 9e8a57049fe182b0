// The seam under everything that Belfry reads from or writes to disk. Tests replace it to inject
// failures at any call; nothing else in the project opens a file.
#pragma once
#include <cstddef>
#include <cstdint>
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
  // Throws errors that a destructor would have to swallow. Call it last.
  virtual void close() = 0;
};

// A regular file being read from its start. Errors throw IoError naming the file.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  // In bytes, when the file was opened; 0 for files that the kernel makes up on reading (/proc).
  virtual std::uint64_t size() const = 0;
  // read() goes on at this byte, at most at the end.
  virtual void seek(std::uint64_t offset) = 0;
  // Fills `out` with the next bytes and returns their number, which is smaller only at the end.
  virtual std::size_t read(std::span<std::byte> out) = 0;
};

// Keeps others out as long as it lives, unless the file system knows no locks.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// kOther: a device, a pipe, a socket; where links are not followed, a link.
enum class FileKind { kNone, kFile, kDirectory, kOther };

// The limit of read() by default, in bytes. No text that Belfry reads is longer.
inline constexpr std::uint64_t kMostTextBytes = std::uint64_t{64} << 20;

// All calls throw IoError naming the path, unless they say otherwise. All follow links to folders
// of a path. A link at the end of a path is followed only by calls that say so.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Makes a file, or empties the one that is there; opens a device or pipe as it is. The directory
  // must exist. Follows a link, also one that leads to nothing yet. A file that is to replace the
  // file `replaced` gets its permissions, if that exists. IoError if this process may not write
  // `replaced`.
  virtual std::unique_ptr<WritableFile> create(const std::string& path,
                                               const std::string& replaced = {}) = 0;
  // Opens a regular file to add to it: keeps the first `size` bytes, and cuts off the rest. With
  // `size` 0 it makes a missing file. IoError if the file has fewer bytes. Follows a link.
  virtual std::unique_ptr<WritableFile> extend(const std::string& path, std::uint64_t size) = 0;
  // Opens `path` for writing at its end, if something is there that must not be replaced: a
  // descriptor() of this process, a device or a pipe. Null for a regular file and for nothing.
  // IoError for a pipe that nobody reads, a descriptor that is closed or read-only, a socket, a
  // disk. Follows a link.
  virtual std::unique_ptr<WritableFile> open_stream(const std::string& path) = 0;
  // The open descriptor of this process that `path` stands for, or -1. It is N for /dev/fd/N and
  // /proc/self/fd/N, 0 for /dev/stdin, 1 for /dev/stdout, 2 for /dev/stderr. A regular file that
  // stdout or stderr writes to gives 1 or 2.
  virtual int descriptor(const std::string& path) = 0;
  // Opens a regular file, to be read in parts. Never waits: IoError names a directory, device, pipe
  // or socket as such. Throws NotFoundError if there is nothing. Follows a link.
  virtual std::unique_ptr<ReadableFile> open(const std::string& path) = 0;
  // Reads the whole file. Throws as open() does; IoError, too, for more than `most` bytes, and if
  // the length changes while it is read.
  std::vector<std::byte> read(const std::string& path, std::uint64_t most = kMostTextBytes);
  // Whether something is there; follows a link, so a dangling one is nothing. Never throws: returns
  // false if the path cannot be looked up. Call kind() where such a failure must throw.
  virtual bool exists(const std::string& path) = 0;
  // The kind of what is there. A link is kOther, whatever it leads to.
  virtual FileKind kind(const std::string& path) = 0;
  // The kind of what `path` leads to. Follows a link; kNone for a dangling one.
  virtual FileKind target_kind(const std::string& path) = 0;
  // When the content behind `path` last changed, in seconds since 1970; 0 if that is not known.
  virtual std::int64_t modified(const std::string& /*path*/) { return 0; }
  // The absolute path without links, "." and "..". It need not exist: after the first missing name,
  // names are kept and ".." removes the name before it. A dangling link gives the path that
  // create() would make. Throws IoError for links that lead in a circle.
  virtual std::string resolve(const std::string& path) = 0;
  // Names (not paths) in a directory, sorted.
  virtual std::vector<std::string> list(const std::string& directory) = 0;
  // Makes missing parents, too. Nothing happens if the directory is there; IoError if something
  // else is.
  virtual void create_directory(const std::string& path) = 0;
  // Makes a symbolic link to `target` at `path`, where nothing may be.
  virtual void create_link(const std::string& path, const std::string& target) = 0;
  // Moves a file, or a directory with its content, to `to`, where a file or an empty directory may
  // be. Others see either the old one or the new one. IoError, and no change, if `to` is a
  // directory with content, or if only one of the two is a directory. Both are in one directory.
  // Links are renamed and replaced themselves.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, a link itself or an empty directory; nothing happens if there is none.
  virtual void remove(const std::string& path) = 0;
  // Makes creations, renames and removals in a directory durable, but not the content of its files.
  virtual void sync_directory(const std::string& path) = 0;
  // Makes an empty file and locks it. The result holds the lock, and removes the file when it goes.
  // Null if another has the lock, in this process or in any that sees the file. The lock ends with
  // the process, however that ends; a file that remains keeps nobody out. IoError if something else
  // than an empty file is there.
  virtual std::unique_ptr<FileLock> lock(const std::string& path) = 0;
};

// The disk.
FileSystem& local_file_system();

// If descriptor 0, 1 or 2 is closed, gives its number to something that cannot be used. So no file
// that is opened later gets the number, and with it printed text. From then on, output to 1 and 2
// waits for its reader, even if it was set not to wait. For main().
void prepare_standard_descriptors();

// Removes a file or link at `path`, or a directory with all below it. Links are not followed.
void remove_tree(FileSystem& files, const std::string& path);

// A name beside `path` for a file that is to replace it, PATH.tmp-<process>-<number>. No other call
// and no other process gets it. Numbers begin with the time, because processes of containers that
// share a folder may have one process number.
std::string temporary_name(const std::string& path);
// Whether `name` is a temporary name of `path`, with digits for both parts. Another process may
// have left such a file.
bool is_temporary_name(std::string_view name, std::string_view path);

// Writes `text` as the whole content of `path`: to a temporary_name(), synced, then renamed. So
// readers see the old file or the new one, and of two writers the last wins. The new file has the
// permissions of the old one. If writing fails, the old file remains and the temporary one goes.
// The new file outlives the machine; where a folder cannot be synced, a warning says that it may
// not.
// Follows a link. If open_stream() opens `path`, the text goes to that stream instead.
void write_text_file(FileSystem& files, const std::string& path, const std::string& text);

// Points the link at `path` to `target`, at once: readers see the old target or the new one. The
// link outlives the machine as a text does. Replaces no directory.
void point_link(FileSystem& files, const std::string& path, const std::string& target);

}  // namespace belfry
