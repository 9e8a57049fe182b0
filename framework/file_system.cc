#include "belfry/framework/file_system.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "belfry/framework/error.h"
#include "belfry/framework/log.h"

namespace belfry {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // on the way of one path, as Linux allows
constexpr std::string_view kTemporary = ".tmp-";

[[noreturn]] void fail(const char* action, const std::string& path, int code) {
  throw IoError(cat(path, ": cannot ", action, ": ", std::strerror(code)));
}

FileKind kind_of(const fs::file_status& status, const std::string& path,
                 const std::error_code& error) {
  switch (status.type()) {
    case fs::file_type::not_found: return FileKind::kNone;
    case fs::file_type::regular: return FileKind::kFile;
    case fs::file_type::directory: return FileKind::kDirectory;
    case fs::file_type::none: fail("look up", path, error.value());
    default: return FileKind::kOther;
  }
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class LocalWritableFile final : public WritableFile {
 public:
  LocalWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  void append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write", path_, errno);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  void sync() override {
    if (::fsync(fd_.get()) != 0) fail("sync", path_, errno);
  }

  void close() override {
    if (::close(fd_.release()) != 0) fail("close", path_, errno);
  }

 private:
  std::string path_;
  Descriptor fd_;
};

class LocalFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) fail("create", path, errno);
    return std::make_unique<LocalWritableFile>(path, fd);
  }

  std::vector<std::byte> read(const std::string& path) override {
    Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0 && errno == ENOENT) throw NotFound(cat(path, ": no such file"));
    if (fd.get() < 0) fail("open", path, errno);
    // One byte more than it seems to have, so that one reading finds the end.
    struct stat status = {};
    if (::fstat(fd.get(), &status) != 0) fail("read", path, errno);
    std::vector<std::byte> bytes(
        std::max<std::size_t>(static_cast<std::size_t>(status.st_size) + 1, std::size_t{1} << 12));
    std::size_t used = 0;
    for (;;) {
      if (used == bytes.size()) bytes.resize(2 * used);
      const ssize_t got = ::read(fd.get(), bytes.data() + used, bytes.size() - used);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("read", path, errno);
      used += static_cast<std::size_t>(got);
      if (got == 0) break;
    }
    bytes.resize(used);
    return bytes;
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
    if (error) fail("resolve", path, error.value());
    return done.string();
  }

  std::vector<std::string> list(const std::string& directory) override {
    std::error_code error;
    std::vector<std::string> names;
    fs::directory_iterator entries(directory, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error))
      names.push_back(entries->path().filename().string());
    if (error) fail("list", directory, error.value());
    std::ranges::sort(names);
    return names;
  }

  void create_directory(const std::string& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) fail("create directory", path, error.value());
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail(cat("rename to ", to).c_str(), from, errno);
  }

  void remove(const std::string& path) override {
    std::error_code error;
    fs::remove(path, error);
    if (error) fail("remove", path, error.value());
  }

  void sync_directory(const std::string& path) override {
    Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0 || ::fsync(fd.get()) != 0) fail("sync directory", path, errno);
  }
};

}  // namespace

FileSystem& local_file_system() {
  static LocalFileSystem instance;
  return instance;
}

void remove_tree(FileSystem& files, const std::string& path) {
  if (files.kind(path) == FileKind::kDirectory)
    for (const std::string& name : files.list(path)) remove_tree(files, cat(path, "/", name));
  files.remove(path);
}

std::string temporary_name(const std::string& path) {
  static std::atomic<int> count{0};
  return cat(path, kTemporary, ::getpid(), "-", count++);
}

bool is_temporary_name(std::string_view name, std::string_view path) {
  if (!name.starts_with(path)) return false;
  name.remove_prefix(path.size());
  if (!name.starts_with(kTemporary)) return false;
  name.remove_prefix(kTemporary.size());
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  };
  const std::size_t dash = name.find('-');
  return dash != name.npos && is_number(name.substr(0, dash)) && is_number(name.substr(dash + 1));
}

void write_text_file(FileSystem& files, const std::string& path, const std::string& text) {
  const std::string temporary = temporary_name(path);
  try {
    const auto file = files.create(temporary);
    file->append(std::as_bytes(std::span(text)));
    file->sync();
    file->close();
    files.rename(temporary, path);
  } catch (...) {
    try {
      files.remove(temporary);
    } catch (const std::exception& error) {
      log_warning("an unfinished file stays behind: ", error.what());
    }
    throw;
  }
}

}  // namespace belfry
