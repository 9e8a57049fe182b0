#include "belfry/framework/base/end_process.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/log.h"

namespace belfry {
namespace {

struct UnfinishedWrites {
  std::mutex mutex;
  int count = 0;
  std::unique_ptr<FileLock> lock;  // tells the launcher
};

UnfinishedWrites& unfinished_writes() {
  static UnfinishedWrites writes;
  return writes;
}

// Null if no launcher wants to know. Without the lock the write goes on, too.
std::unique_ptr<FileLock> lock_for_launcher() try {
  const char* const path = std::getenv(kUnfinishedVariable);
  if (!path || !*path) return nullptr;
  constexpr int kTries = 100;  // the launcher holds the lock itself while it looks
  for (int i = 0; i < kTries; ++i) {
    if (auto lock = local_file_system().lock(path)) return lock;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return nullptr;
} catch (const Error& error) {
  log_debug("the launcher cannot be told of a write: ", error.what());
  return nullptr;
}

// What can be written without waiting; at most 0 if nothing can.
ssize_t write_some(int file, std::string_view text) {
  if (file >= 0) return ::write(file, text.data(), text.size());
  const ssize_t sent = ::send(STDERR_FILENO, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0 || errno != ENOTSOCK) return sent;
  pollfd waits{STDERR_FILENO, POLLOUT, 0};  // a pipe that is ready takes so many bytes at once
  if (::poll(&waits, 1, 0) <= 0) return 0;
  return ::write(STDERR_FILENO, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
}

// Opened anew, so that others who write to the same pipe or terminal go on waiting as they like.
// Sockets, and terminals of other users, cannot be opened.
void write_without_waiting(std::string_view text) {
  const int file =
      ::open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  while (!text.empty()) {
    const ssize_t written = write_some(file, text);
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

void end_process(int code) { ::_exit(code); }

UnfinishedWrite::UnfinishedWrite() {
  UnfinishedWrites& writes = unfinished_writes();
  const std::lock_guard lock(writes.mutex);
  if (writes.count++ == 0) writes.lock = lock_for_launcher();
}

UnfinishedWrite::~UnfinishedWrite() {
  UnfinishedWrites& writes = unfinished_writes();
  const std::lock_guard lock(writes.mutex);
  if (--writes.count == 0) writes.lock.reset();
}

bool UnfinishedWrite::any() {
  UnfinishedWrites& writes = unfinished_writes();
  const std::lock_guard lock(writes.mutex);
  return writes.count > 0;
}

void end_process(int code, std::string_view last_words) {
  std::signal(SIGPIPE, SIG_IGN);  // nobody may read any more
  write_without_waiting(last_words);
  end_process(code);
}

}  // namespace belfry
