// Open files of the disk, and the owners of their descriptors.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "belfry/framework/base/file_system.h"

namespace belfry {

// Throws IoError: "PATH: cannot ACTION: " and the text of errno `code`.
[[noreturn]] void fail_file(const char* action, const std::string& path, int code);

// Owns a descriptor, unless it is negative.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// A regular file, open for reading. Throws as FileSystem::open() does.
struct FileToRead {
  Descriptor fd;
  std::uint64_t size;  // bytes
};
FileToRead open_to_read(const std::string& path);

class LocalWritableFile final : public WritableFile {
 public:
  LocalWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  void append(std::span<const std::byte> bytes) override;
  void sync() override;
  void close() override;

 private:
  std::string path_;
  Descriptor fd_;
};

class LocalReadableFile final : public ReadableFile {
 public:
  LocalReadableFile(std::string path, Descriptor fd, std::uint64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}
  std::uint64_t size() const override { return size_; }
  void seek(std::uint64_t offset) override;
  std::size_t read(std::span<std::byte> out) override;

 private:
  std::string path_;
  Descriptor fd_;
  std::uint64_t size_;
};

// `fd` is the open and locked file `path`.
class LocalFileLock final : public FileLock {
 public:
  LocalFileLock(std::string path, Descriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  // Removes the file while it is still locked: whoever locks it from now on sees that it is gone.
  ~LocalFileLock() override;

 private:
  std::string path_;
  Descriptor fd_;
};

}  // namespace belfry
