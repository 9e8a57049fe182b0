#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <unistd.h>

#include "belfry/framework/base/advised_error.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/local_file_impl.h"
#include "belfry/framework/base/text.h"

namespace belfry {

void fail_file(const char* action, const std::string& path, int code) {
  const std::string what = cat(path, ": cannot ", action, ": ", std::strerror(code));
  if (code == EACCES || code == EPERM) throw DeniedError(what);
  throw IoError(what);
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void LocalWritableFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {  // a full pipe that others gave us, set not to wait
      pollfd room{.fd = fd_.get(), .events = POLLOUT, .revents = 0};
      ::poll(&room, 1, -1);
      continue;
    }
    if (written < 0) fail_file("write", path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void LocalWritableFile::sync() {
  if (::fsync(fd_.get()) != 0) fail_file("sync", path_, errno);
}

void LocalWritableFile::close() {
  if (::close(fd_.release()) != 0) fail_file("close", path_, errno);
}

void LocalReadableFile::seek(std::uint64_t offset) {
  if (::lseek(fd_.get(), static_cast<off_t>(std::min(offset, size_)), SEEK_SET) < 0)
    fail_file("read", path_, errno);
}

std::size_t LocalReadableFile::read(std::span<std::byte> out) {
  std::size_t used = 0;
  while (used < out.size()) {
    const ssize_t got = ::read(fd_.get(), out.data() + used, out.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file("read", path_, errno);
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  return used;
}

LocalFileLock::~LocalFileLock() { ::unlink(path_.c_str()); }

}  // namespace belfry
