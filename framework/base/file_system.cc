#include "belfry/framework/base/file_system.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "belfry/framework/base/advised_error.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/is_locked.h"
#include "belfry/framework/base/local_file_impl.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // on the way of one path, as Linux allows
// None of these blocks on another process, or makes a terminal the process's own.
constexpr int kOpen = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

FileKind kind_of(const fs::file_status& status, const std::string& path,
                 const std::error_code& error) {
  switch (status.type()) {
    case fs::file_type::not_found: return FileKind::kNone;
    case fs::file_type::regular: return FileKind::kFile;
    case fs::file_type::directory: return FileKind::kDirectory;
    case fs::file_type::none: fail_file("look up", path, error.value());
    default: return FileKind::kOther;
  }
}

// "a pipe"; "" for a regular file.
std::string_view other_kind(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG: return "";
    case S_IFDIR: return "a directory";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    case S_IFBLK: return "a disk";
    default: return "a device";
  }
}

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// -1 if the text is not a number.
int descriptor_number(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

// N of /dev/fd/N and /proc/self/fd/N, 0 of /dev/stdin, 1 of /dev/stdout, 2 of /dev/stderr; else -1.
int named_descriptor(std::string_view path) {
  if (path == "/dev/stdin") return 0;
  if (path == "/dev/stdout") return 1;
  if (path == "/dev/stderr") return 2;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"})
    if (path.starts_with(folder)) return descriptor_number(path.substr(folder.size()));
  return -1;
}

// Makes writes to `fd` wait for a slow reader, because they would be lost otherwise. Other
// processes share the open file description and may need it as it is, so `fd` gets its own. If
// there can be none, as for a socket, the shared one is changed.
void make_wait(int fd) {
  const int mode = ::fcntl(fd, F_GETFL);
  struct stat status = {};
  if (mode < 0 || (mode & O_NONBLOCK) == 0 || ::fstat(fd, &status) != 0) return;
  if (S_ISREG(status.st_mode)) return;
  // kOpen does not block here either: a pipe without a reader would never open.
  const std::string name = cat("/proc/self/fd/", fd);
  const Descriptor own(::open(name.c_str(), (mode & (O_ACCMODE | O_APPEND)) | kOpen));
  if (own.get() >= 0) ::dup2(own.get(), fd);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

std::unique_ptr<WritableFile> opened(const std::string& path, int fd, const char* action,
                                     bool waits = true) {
  if (fd < 0) fail_file(action, path, errno);
  // open() with kOpen did not block; writes do.
  if (waits) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return std::make_unique<LocalWritableFile>(path, fd);
}

class LocalFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path,
                                       const std::string& replaced) override {
    struct stat old = {};
    const bool replaces = !replaced.empty() && ::stat(replaced.c_str(), &old) == 0;
    if (replaces && ::faccessat(AT_FDCWD, replaced.c_str(), W_OK, AT_EACCESS) != 0)
      fail_file("replace", replaced, errno);
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | kOpen, 0644);
    auto file = opened(replaced.empty() ? path : replaced, fd, "create");
    if (replaces) ::fchmod(fd, old.st_mode & 0777);
    return file;
  }

  std::unique_ptr<WritableFile> extend(const std::string& path, std::uint64_t size) override {
    Descriptor fd(::open(path.c_str(), O_WRONLY | (size == 0 ? O_CREAT : 0) | kOpen, 0644));
    struct stat status = {};
    if (fd.get() < 0 || ::fstat(fd.get(), &status) != 0) fail_file("open", path, errno);
    require<IoError>(S_ISREG(status.st_mode), path, " is ", other_kind(status.st_mode),
                     ", not a file");
    require<IoError>(static_cast<std::uint64_t>(status.st_size) >= size, path, ": has ",
                     status.st_size, " bytes where there were ", size);
    if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0 ||
        ::lseek(fd.get(), static_cast<off_t>(size), SEEK_SET) < 0)
      fail_file("cut", path, errno);
    return opened(path, ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0), "open");
  }

  std::unique_ptr<WritableFile> open_stream(const std::string& path) override {
    const fs::path name = fs::path(path).filename();
    require<IoError>(!name.empty() && name != "." && name != "..", path, " names a directory");
    if (const int number = descriptor(path); number >= 0) {
      const int mode = ::fcntl(number, F_GETFL);
      if (mode < 0) fail_file("write", path, errno);
      require<IoError>((mode & O_ACCMODE) != O_RDONLY, path, " is open to be read alone");
      return opened(path, ::fcntl(number, F_DUPFD_CLOEXEC, 0), "write", /*waits=*/false);
    }
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return nullptr;
      fail_file("look up", path, errno);
    }
    const std::string_view kind = other_kind(status.st_mode);
    if (kind.empty()) return nullptr;
    for (const std::string_view refused : {"a directory", "a socket", "a disk"})
      require<IoError>(kind != refused, path, " is ", refused, ", not a file");
    const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | kOpen);
    require<AdvisedIoError>(fd >= 0 || errno != ENXIO || kind != "a pipe", path,
                            " is a pipe that no process reads; start the reader first");
    return opened(path, fd, "write");
  }

  int descriptor(const std::string& path) override {
    if (const int number = named_descriptor(path); number >= 0) return number;
    struct stat there = {}, stream = {};
    if (::stat(path.c_str(), &there) != 0 || !S_ISREG(there.st_mode)) return -1;
    for (const int number : {1, 2})
      if (::fstat(number, &stream) == 0 && is_same(stream, there)) return number;
    return -1;
  }

  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    FileToRead file = open_to_read(path);
    return std::make_unique<LocalReadableFile>(path, std::move(file.fd), file.size);
  }

  bool exists(const std::string& path) override {
    std::error_code ignored;
    return fs::exists(path, ignored);
  }

  FileKind kind(const std::string& path) override {
    std::error_code error;
    return kind_of(fs::symlink_status(path, error), path, error);
  }

  FileKind target_kind(const std::string& path) override {
    std::error_code error;
    return kind_of(fs::status(path, error), path, error);
  }

  std::int64_t modified(const std::string& path) override {
    struct stat status = {};
    return ::stat(path.c_str(), &status) == 0 ? std::int64_t{status.st_mtim.tv_sec} : 0;
  }

  std::string resolve(const std::string& path) override {
    std::error_code error;
    const fs::path absolute = fs::absolute(path, error);
    std::deque<fs::path> rest(absolute.begin(), absolute.end());
    fs::path done = "/";
    for (int links = 0; !error && !rest.empty();) {
      const fs::path next = done / rest.front();  // "/" makes it "/"
      const bool up = rest.front() == "..", stays = rest.front() == "." || rest.front().empty();
      rest.pop_front();
      if (up) done = done.parent_path();
      if (up || stays) continue;
      if (fs::symlink_status(next, error).type() != fs::file_type::symlink) {
        if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory)
          error.clear();
        done = next;
      } else if (++links > kMostLinks) {
        error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
      } else {
        const fs::path target = fs::read_symlink(next, error);
        rest.insert(rest.begin(), target.begin(), target.end());
      }
    }
    if (error) fail_file("resolve", path, error.value());
    return done.string();
  }

  std::vector<std::string> list(const std::string& directory) override {
    std::error_code error;
    std::vector<std::string> names;
    fs::directory_iterator entries(directory, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error))
      names.push_back(entries->path().filename().string());
    if (error) fail_file("list", directory, error.value());
    std::ranges::sort(names);
    return names;
  }

  void create_directory(const std::string& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) fail_file("create directory", path, error.value());
  }

  void create_link(const std::string& path, const std::string& target) override {
    if (::symlink(target.c_str(), path.c_str()) != 0) fail_file("link", path, errno);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0)
      fail_file(cat("rename to ", to).c_str(), from, errno);
  }

  void remove(const std::string& path) override {
    std::error_code error;
    fs::remove(path, error);
    const bool gone = error == std::errc::not_a_directory;  // a file is where its folder should be
    if (error && !gone) fail_file("remove", path, error.value());
  }

  void sync_directory(const std::string& path) override {
    Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0 || ::fsync(fd.get()) != 0) fail_file("sync directory", path, errno);
  }

  std::unique_ptr<FileLock> lock(const std::string& path) override;
};

// Opens the file of a lock, and creates it if it is missing.
Descriptor open_lock(const std::string& path, struct stat& status) {
  constexpr int kLock = O_CREAT | O_NOFOLLOW | kOpen;
  int opened = ::open(path.c_str(), O_RDWR | kLock, 0666);
  if (opened < 0 && errno == EACCES) opened = ::open(path.c_str(), O_RDONLY | kLock, 0666);
  Descriptor fd(opened);
  require<IoError>(fd.get() >= 0 || (errno != EISDIR && errno != ELOOP), path,
                   " is in the way of a lock: move it away");
  if (fd.get() < 0 || ::fstat(fd.get(), &status) != 0)
    throw IoError(cat(path, ": cannot lock: ", std::strerror(errno),
                      "; let this process write to the folder ",
                      fs::path(path).parent_path().string(), ", or save elsewhere"));
  require<IoError>(S_ISREG(status.st_mode) && status.st_size == 0, path,
                   " is in the way of a lock: move it away");
  return fd;
}

// flock(), not process numbers, which mean nothing in another container. NFS forwards flock() to
// its server.
std::unique_ptr<FileLock> LocalFileSystem::lock(const std::string& path) {
  constexpr int kMostTries = 100;
  constexpr useconds_t kPause = 10'000;  // microseconds
  for (int tries = 0; tries < kMostTries; ++tries) {
    struct stat mine = {}, there = {};
    Descriptor fd = open_lock(path, mine);
    const int failure = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (failure == EWOULDBLOCK) return nullptr;
    if (failure != 0 && failure != EINTR && failure != ESTALE && first_time_logged("no locks"))
      log_warning(path, ": this file system has no locks (", std::strerror(failure),
                  "); let no two programs write there at once");
    // If this fails, the previous holder has removed the file: try again.
    if (::lstat(path.c_str(), &there) == 0 && is_same(mine, there))
      return std::make_unique<LocalFileLock>(path, std::move(fd));
    ::usleep(kPause);
  }
  throw IoError(cat(path, ": cannot lock: the locked file is not found by its name; its file ",
                    "system does not keep what locks need: save elsewhere"));
}

}  // namespace

bool is_locked(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | kOpen));
  if (fd.get() < 0) return errno != ENOENT;
  return ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

FileToRead open_to_read(const std::string& path) {
  const auto require_regular = [&](const struct stat& status) {
    const std::string_view kind = other_kind(status.st_mode);
    require<IoError>(kind.empty(), path, ": is ", kind, ", not a file to read");
  };
  // stat() comes first, because opening a device may have effects.
  struct stat status = {};
  const bool missing = ::stat(path.c_str(), &status) != 0;
  if (missing && errno == ENOENT) throw NotFoundError(cat(path, ": no such file"));
  if (missing) fail_file("open", path, errno);
  require_regular(status);
  Descriptor fd(::open(path.c_str(), O_RDONLY | kOpen));
  if (fd.get() < 0 || ::fstat(fd.get(), &status) != 0) fail_file("open", path, errno);
  require_regular(status);
  return {std::move(fd), static_cast<std::uint64_t>(status.st_size)};
}

FileSystem& local_file_system() {
  static LocalFileSystem instance;
  return instance;
}

void prepare_standard_descriptors() {
  // Read-only descriptors fail on writes, and write-only ones on reads.
  constexpr int kWrongWay[] = {O_WRONLY, O_RDONLY, O_RDONLY};
  for (int fd = 0; fd < 3; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", kWrongWay[fd]) < 0)
      fail_file("open", "/dev/null", errno);
  for (const int fd : {1, 2}) make_wait(fd);
}

}  // namespace belfry
