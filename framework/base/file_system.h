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
  // Reports what a destructor would have to swallow. Call it last.
  virtual void close() = 0;
};

// A regular file being read from its start. Errors throw IoError naming the file.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  // In bytes, when it was opened; 0 for what the kernel makes up as it is read (/proc).
  virtual std::uint64_t size() const = 0;
  // read() goes on at this byte, at most at the end.
  virtual void seek(std::uint64_t offset) = 0;
  // Fills `out` with what follows and returns how many bytes there were: fewer only at the end.
  virtual std::size_t read(std::span<std::byte> out) = 0;
};

// Keeps others out as long as it lives.
class FileLock {
 public:
  virtual ~FileLock() = default;
  // False on a file system that knows no locks: it keeps nobody out.
  virtual bool excludes() const = 0;
};

// kOther: a device, a pipe, a socket; where links are not followed, a link.
enum class FileKind { kNone, kFile, kDirectory, kOther };

// What read() takes unless told otherwise, in bytes: more than any text of ours has.
inline constexpr std::uint64_t kMostTextBytes = std::uint64_t{64} << 20;

// All throw IoError naming the path, where nothing else is said. Links on the way to the last name
// of a path are followed by all, the last name itself where it is said.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Makes a file, or empties the one that is there; opens a device or pipe as it is. The directory
  // must exist. Follows a link, also one that leads to nothing yet.
  // With `like` the file is for its place, and must be new. If there is a file `like`, the new one
  // has its permissions, and its owner and group where this process may give them. IoError if this
  // process may not write `like`, or not replace it.
  virtual std::unique_ptr<WritableFile> create(const std::string& path,
                                               const std::string& like = {}) = 0;
  // A regular file that is added to: keeps its first `size` bytes, and cuts off what follows. With
  // `size` 0 it is made if there is none. IoError if it has fewer bytes. Follows a link.
  virtual std::unique_ptr<WritableFile> extend(const std::string& path, std::uint64_t size) = 0;
  // To be written from its end on, if there is something at `path` that must not be replaced. That
  // is a descriptor() of this process, one of another process, a device or a pipe. Null for a
  // regular file and for nothing. IoError for a pipe that nobody reads, a descriptor that is closed
  // or only to be read, a socket, a disk. Follows a link.
  virtual std::unique_ptr<WritableFile> open_stream(const std::string& path) = 0;
  // The open descriptor of this process that `path` stands for. It is N for /dev/fd/N,
  // /proc/self/fd/N, /dev/stdout (1), /dev/stderr (2) and what leads there. It is also that of the
  // regular file that stdout or stderr goes to. Else -1.
  virtual int descriptor(const std::string& path) = 0;
  // A regular file, to be read in parts. Never waits: IoError names a directory, device, pipe or
  // socket as such. Throws NotFound if there is nothing. Follows a link.
  virtual std::unique_ptr<ReadableFile> open(const std::string& path) = 0;
  // The whole file. Throws as open() does; IoError, too, for more than `most` bytes, and if it
  // becomes longer or shorter while it is read.
  std::vector<std::byte> read(const std::string& path, std::uint64_t most = kMostTextBytes);
  // Whether something is there; follows a link, so a dangling one is nothing. Never throws: what
  // cannot be looked up is taken for nothing. Where that matters, ask for the kind.
  virtual bool exists(const std::string& path) = 0;
  // What is there. A link is kOther, whatever it leads to.
  virtual FileKind kind(const std::string& path) = 0;
  // What the path leads to. Follows a link; kNone if it dangles, that is, if it leads to nothing.
  virtual FileKind target_kind(const std::string& path) = 0;
  // When the content of what the path leads to last changed, in seconds since 1970; 0 where that is
  // not known.
  virtual std::int64_t modified(const std::string& /*path*/) { return 0; }
  // The absolute path without links, "." and "..". It need not exist: from the first name that is
  // not there on, names are kept and ".." takes off the one before. A dangling link gives what it
  // would lead to, which create() makes. Throws IoError for links that lead in a circle.
  virtual std::string resolve(const std::string& path) = 0;
  // Names (not paths) in a directory, sorted.
  virtual std::vector<std::string> list(const std::string& directory) = 0;
  // Makes parents, too. Nothing happens if the directory is there; IoError if something else is.
  // With `like`, as of create(): the parent is there, and the directory is not.
  virtual void create_directory(const std::string& path, const std::string& like = {}) = 0;
  // Makes a symbolic link at `path`, where nothing may be, that says `target`.
  virtual void create_link(const std::string& path, const std::string& target) = 0;
  // Puts a file, or a directory and what is in it, where a file or an empty directory may be. It
  // does so at once: others see that one or this one. IoError, and no change, if a directory with
  // content is at `to`, or one of them is a directory and the other is none. Both are in one
  // directory. Links are renamed and replaced themselves.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // A file, a link itself or an empty directory; nothing happens if there is none.
  virtual void remove(const std::string& path) = 0;
  // Makes durable what was created, renamed and removed in a directory, not what its files hold.
  virtual void sync_directory(const std::string& path) = 0;
  // Makes an empty file and locks it until the result goes, which removes it. Null if another has
  // it, in this process or in any that sees the file. The lock ends with the process, however that
  // ends; what remains of the file is in nobody's way. IoError for what is no empty file.
  virtual std::unique_ptr<FileLock> lock(const std::string& path) = 0;
};

// The disk.
FileSystem& local_file_system();

// Gives descriptors 0, 1 and 2, where they are closed, to something that cannot be used. So no file
// that is opened gets them, and what is printed. What is printed to 1 and 2 waits for its reader
// from then on, also where they were set not to wait. For main().
void prepare_standard_descriptors();

// Removes what is at `path`, and all below it if that is a directory. Links are not followed.
void remove_tree(FileSystem& files, const std::string& path);

// A name beside `path` for what is to replace it, PATH.tmp-<process>-<number>. No other call gets
// it, nor another process: the numbers begin with the time, as containers that share a folder may
// have processes of one number.
std::string temporary_name(const std::string& path);
// Whether `name` is of this form, with digits for both: what another process may have left.
bool is_temporary_name(std::string_view name, std::string_view path);

// Writes `text` as the whole content of `path`: to a temporary_name(), synced, then renamed. So
// readers see the old file or the new one, and of two writers the last wins. The new file has the
// permissions of the old one. If that fails, the old file remains and the temporary one goes. A
// link is followed. What open_stream() opens is written to as it is instead.
void write_text_file(FileSystem& files, const std::string& path, const std::string& text);

// Makes the link at `path` say `target`, at once: readers see what was there or this. No directory
// is replaced.
void point_link(FileSystem& files, const std::string& path, const std::string& target);

}  // namespace belfry
