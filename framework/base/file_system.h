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
  // In bytes, when it was opened; 0 for files that the kernel generates on reading (/proc).
  virtual std::uint64_t size() const = 0;
  // read() continues at this byte, at most at the end.
  virtual void seek(std::uint64_t offset) = 0;
  // Fills `out` with the next bytes and returns how many, which is fewer only at the end.
  virtual std::size_t read(std::span<std::byte> out) = 0;
};

// Keeps others out while it lives, unless the file system has no locks.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// kOther: a device, a pipe, a socket; where links are not followed, a link.
enum class FileKind { kNone, kFile, kDirectory, kOther };

// The default limit of read(), in bytes. No text that Belfry reads is longer.
inline constexpr std::uint64_t kMostTextBytes = std::uint64_t{64} << 20;

// All calls throw IoError naming the path, unless they say otherwise. All follow links among the
// folders of a path. Only calls that say so follow a link at its end.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Creates a file, or truncates the one that is there; opens a device or pipe as it is. The
  // directory must exist. Follows a link, even a dangling one. A file that will replace the file
  // `replaced` gets its permissions, if that exists. IoError if this process may not write
  // `replaced`.
  virtual std::unique_ptr<WritableFile> create(const std::string& path,
                                               const std::string& replaced = {}) = 0;
  // Opens a regular file to append to it: keeps the first `size` bytes, and cuts off the rest. With
  // `size` 0 it creates a missing file. IoError if the file is shorter. Follows a link.
  virtual std::unique_ptr<WritableFile> extend(const std::string& path, std::uint64_t size) = 0;
  // Opens `path` for writing at its end, if it is something that must not be replaced: a
  // descriptor() of this process, a device or a pipe. Null for a regular file, or if there is
  // nothing. IoError for a pipe without a reader, a closed or read-only descriptor, a socket, a
  // disk. Follows a link.
  virtual std::unique_ptr<WritableFile> open_stream(const std::string& path) = 0;
  // The open descriptor of this process that `path` stands for, or -1. It is N for /dev/fd/N and
  // /proc/self/fd/N, 0 for /dev/stdin, 1 for /dev/stdout, 2 for /dev/stderr. A regular file that
  // stdout or stderr writes to gives 1 or 2.
  virtual int descriptor(const std::string& path) = 0;
  // Opens a regular file, to be read in parts. Never blocks: IoError names a directory, device,
  // pipe or socket as such. Throws NotFoundError if there is nothing. Follows a link.
  virtual std::unique_ptr<ReadableFile> open(const std::string& path) = 0;
  // Reads the whole file. Throws as open() does, and IoError if it has more than `most` bytes, or
  // if its length changes meanwhile.
  std::vector<std::byte> read(const std::string& path, std::uint64_t most = kMostTextBytes);
  // Whether something is there. Follows a link, so a dangling one counts as nothing. Never throws:
  // returns false if the path cannot be looked up. Use kind() where such a failure must throw.
  virtual bool exists(const std::string& path) = 0;
  // The kind of what is there. A link is kOther, whatever it points to.
  virtual FileKind kind(const std::string& path) = 0;
  // The kind of what `path` points to. Follows a link; kNone for a dangling one.
  virtual FileKind target_kind(const std::string& path) = 0;
  // When the content at `path` last changed, in seconds since 1970; 0 if unknown.
  virtual std::int64_t modified(const std::string& /*path*/) { return 0; }
  // The absolute path without links, "." and "..". It need not exist: after the first missing name,
  // names are kept and ".." removes the name before it. A dangling link gives the path that
  // create() would create. Throws IoError for a cycle of links.
  virtual std::string resolve(const std::string& path) = 0;
  // Names (not paths) in a directory, sorted.
  virtual std::vector<std::string> list(const std::string& directory) = 0;
  // Creates missing parents, too. Does nothing if the directory exists; IoError if something else
  // is there.
  virtual void create_directory(const std::string& path) = 0;
  // Creates a symbolic link to `target` at `path`, where nothing may be.
  virtual void create_link(const std::string& path, const std::string& target) = 0;
  // Moves a file, or a directory with its content, to `to`, where a file or an empty directory may
  // be. Atomic: others see either the old one or the new one. IoError, and no change, if `to` is a
  // directory with content, or if only one of the two is a directory. Both are in one directory.
  // Links themselves are renamed and replaced.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, a link itself or an empty directory; does nothing if there is none.
  virtual void remove(const std::string& path) = 0;
  // Makes creations, renames and removals in a directory durable, but not the content of its files.
  virtual void sync_directory(const std::string& path) = 0;
  // Creates an empty file and locks it. The result holds the lock, and removes the file when it is
  // destroyed. Null if the lock is taken, in this process or in any that sees the file. The lock
  // ends with the process, however that ends; a leftover file keeps nobody out. IoError if anything
  // but an empty file is there.
  virtual std::unique_ptr<FileLock> lock(const std::string& path) = 0;
};

// The disk.
FileSystem& local_file_system();

// If descriptor 0, 1 or 2 is closed, gives its number to something unusable. Otherwise a file
// opened later could get the number, and with it printed text. From then on, writes to 1 and 2 wait
// for a slow reader, even if they were non-blocking. For main().
void prepare_standard_descriptors();

// Removes a file or link at `path`, or a directory and everything below it. Follows no links.
void remove_tree(FileSystem& files, const std::string& path);

// A name next to `path` for a file that will replace it, PATH.tmp-<process>-<number>. No other call
// and no other process gets it. Numbers start from the clock, because processes of containers that
// share a folder may have the same process number.
std::string temporary_name(const std::string& path);
// Whether `name` is a temporary name of `path`, with digits for both parts. Another process may
// have left such a file.
bool is_temporary_name(std::string_view name, std::string_view path);

// Writes `text` as the whole content of `path`: to a temporary_name(), synced, then renamed. So
// readers see the old file or the new one, and of two writers the last wins. The new file has the
// permissions of the old one. If writing fails, the old file stays and the temporary one is
// removed. The new file survives a crash of the machine; where its folder cannot be synced, a
// warning says that it may not. Follows a link. If open_stream() opens `path`, the text goes to
// that stream instead.
void write_text_file(FileSystem& files, const std::string& path, const std::string& text);

// Atomically points the link at `path` to `target`: readers see the old target or the new one. It
// is as durable as a file of write_text_file(). Replaces no directory.
void point_link(FileSystem& files, const std::string& path, const std::string& target);

}  // namespace belfry
