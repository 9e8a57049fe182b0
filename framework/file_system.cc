#include "belfry/framework/file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "belfry/framework/error.h"

namespace belfry {
namespace {

[[noreturn]] void fail(const char* action, const std::string& path, int code) {
  throw IoError(cat(path, ": cannot ", action, ": ", std::strerror(code)));
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
    return std::filesystem::exists(path, ignored);
  }

  FileKind kind(const std::string& path) override {
    std::error_code error;
    const auto type = std::filesystem::symlink_status(path, error).type();
    switch (type) {
      case std::filesystem::file_type::not_found: return FileKind::kNone;
      case std::filesystem::file_type::regular: return FileKind::kFile;
      case std::filesystem::file_type::directory: return FileKind::kDirectory;
      case std::filesystem::file_type::none: fail("look up", path, error.value());
      default: return FileKind::kOther;
    }
  }

  std::string resolve(const std::string& path) override {
    std::error_code error;
    const auto absolute = std::filesystem::absolute(path, error);
    const auto resolved = std::filesystem::weakly_canonical(absolute, error);
    if (error) fail("resolve", path, error.value());
    return resolved.string();
  }

  std::vector<std::string> list(const std::string& directory) override {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator entries(directory, error);
    for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error))
      names.push_back(entries->path().filename().string());
    if (error) fail("list", directory, error.value());
    std::ranges::sort(names);
    return names;
  }

  void create_directory(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) fail("create directory", path, error.value());
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail(cat("rename to ", to).c_str(), from, errno);
  }

  void remove(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove(path, error);
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

void write_text_file(FileSystem& files, const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  auto file = files.create(temporary);
  file->append(std::as_bytes(std::span(text)));
  file->sync();
  file->close();
  files.rename(temporary, path);
}

}  // namespace belfry
