#include "belfry/trainers/commands/command_output.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/threads.h"

namespace belfry {
namespace {

// Gives up if nobody can take it any more. Returns the number of the error; 0: none.
int write_to_reader(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written > 0)
      text.remove_prefix(static_cast<std::size_t>(written));
    else if (errno == EAGAIN) {  // another process has set it not to wait
      pollfd wait{file, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR)
      return errno;
  }
  return 0;
}

bool lead_to_one_place(int file, int other) {
  struct stat a = {}, b = {};
  return ::fstat(file, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

}  // namespace

// Shared with its thread, which outlives the owner if a write hangs.
class CommandOutput::Queue {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Queue(const CommandOutputOptions& options) : options_(options) {}

  static std::shared_ptr<Queue> start(const CommandOutputOptions& options) {
    auto queue = std::make_shared<Queue>(options);
    start_thread({"the output of the command", "let it start one more thread"}, [queue] {
      queue->write();
    }).detach();
    return queue;
  }

  void print(int file, std::string_view text) {
    const std::lock_guard lock(mutex_);
    const bool fits = left_out_ > 0 ? waiting_ <= options_.room / 2
                                    : waiting_ == 0 || waiting_ + text.size() <= options_.room;
    if (!fits) {
      left_out_ += text.size();
      return;
    }
    say_what_is_left_out(file);
    push(file, text);
  }

  bool is_full() const {
    const std::lock_guard lock(mutex_);
    return !hurried_ && waiting_ > 0 && waiting_ + kMostAtOnce > options_.room &&
           Clock::now() - moved_at_ < options_.patience;
  }

  bool is_settled() const {
    const std::lock_guard lock(mutex_);
    return waiting_ == 0 || Clock::now() - moved_at_ >= patience();
  }

  void hurry(bool now) {
    const std::lock_guard lock(mutex_);
    hurried_ = now;
  }

  bool has_failed() const {
    const std::lock_guard lock(mutex_);
    return has_failed_;
  }

  void finish() {
    std::unique_lock lock(mutex_);
    if (waiting_ <= options_.room / 2) say_what_is_left_out(options_.errors);
    while (waiting_ > 0 &&
           changed_.wait_until(lock, moved_at_ + patience()) != std::cv_status::timeout) {
    }
    ended_ = true;
    changed_.notify_all();
  }

 private:
  struct Piece {
    int file;
    std::string text;
  };
  // Small, so that a reader who takes little at a time is seen to take some.
  static constexpr std::size_t kPiece = 4096;

  std::chrono::milliseconds patience() const {
    return hurried_ ? options_.hurried_patience : options_.patience;
  }

  void say_what_is_left_out(int file) {
    if (left_out_ == 0) return;
    push(file, cat("\nbelfry run: ", left_out_, " bytes of output, which nobody read in time, are ",
                   "left out here; ", options_.kept_in, " has them\n"));
    left_out_ = 0;
  }

  void push(int file, std::string_view text) {
    if (waiting_ == 0) moved_at_ = Clock::now();
    waiting_ += text.size();
    for (; !text.empty(); text.remove_prefix(std::min(kPiece, text.size())))
      pieces_.push_back({file, std::string(text.substr(0, kPiece))});
    changed_.notify_all();
  }

  void write() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ended_ || !pieces_.empty(); });
      if (ended_) return;
      const Piece piece = std::move(pieces_.front());
      pieces_.pop_front();
      lock.unlock();
      const int error = write_to_reader(piece.file, piece.text);
      lock.lock();
      // A reader that has gone wants no more.
      if (piece.file == options_.output && error != 0 && error != EPIPE) has_failed_ = true;
      waiting_ -= piece.text.size();
      moved_at_ = Clock::now();
      changed_.notify_all();
    }
  }

  const CommandOutputOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  std::size_t waiting_ = 0;   // bytes, with the piece that is being written
  std::size_t left_out_ = 0;  // bytes since the last line that says so
  Clock::time_point moved_at_;
  bool hurried_ = false, ended_ = false, has_failed_ = false;
};

CommandOutput::CommandOutput(CommandOutputOptions options)
    : options_(std::move(options)),
      output_(Queue::start(options_)),
      errors_(lead_to_one_place(options_.output, options_.errors) ? output_
                                                                  : Queue::start(options_)) {}

CommandOutput::~CommandOutput() {
  output_->finish();
  if (errors_ != output_) errors_->finish();
}

void CommandOutput::print_to(int file, std::string_view text) { queue_of(file).print(file, text); }

CommandOutput::Queue& CommandOutput::queue_of(int file) const {
  return file == options_.output ? *output_ : *errors_;
}

bool CommandOutput::is_full() const { return output_->is_full() || errors_->is_full(); }

bool CommandOutput::is_settled() const { return output_->is_settled() && errors_->is_settled(); }

bool CommandOutput::has_failed() const { return output_->has_failed(); }

void CommandOutput::hurry(bool now) {
  output_->hurry(now);
  errors_->hurry(now);
}

}  // namespace belfry
