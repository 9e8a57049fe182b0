#include "belfry/framework/base/end_process.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include <unistd.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/log.h"

namespace belfry {
namespace {

struct UnfinishedWrites {
  std::mutex mutex;
  int count = 0;
  std::unique_ptr<FileLock> lock;  // informs the launcher
};

UnfinishedWrites& unfinished_writes() {
  static UnfinishedWrites writes;
  return writes;
}

// Null if no launcher asks for it. Without the lock the write continues nevertheless.
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

std::atomic<int>& code_of_end() {
  static std::atomic<int> instance{1};
  return instance;
}

void end_at_alarm(int) { ::_exit(code_of_end()); }

// Ends the process after a second, whatever its threads wait for.
void set_alarm(int code) {
  code_of_end() = code;
  std::signal(SIGALRM, end_at_alarm);
  sigset_t alarm{};
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  ::alarm(1);
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
  set_alarm(code);
  std::signal(SIGPIPE, SIG_IGN);  // nobody may read any more
  while (!last_words.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, last_words.data(), last_words.size());
    if (written <= 0) break;
    last_words.remove_prefix(static_cast<std::size_t>(written));
  }
  end_process(code);
}

}  // namespace belfry
