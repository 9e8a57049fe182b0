// The output of a command that must not wait for slow readers.
#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace belfry {

struct CommandOutputOptions {
  std::string kept_in;  // the file with all output, named to readers who missed some
  int output = 1, errors = 2;
  std::size_t room = 512 << 10;  // bytes that may wait for a reader
  // How long a reader may take nothing, as a hanging reader does, or a terminal after Ctrl-S.
  std::chrono::milliseconds patience{10'000};
  std::chrono::milliseconds hurried_patience{1'000};  // during hurry()
};

// Writes to standard output and standard error from its own threads. A reader that is slow gets
// everything. What one does not take in time is left out, and a line says so.
class CommandOutput {
 public:
  // The most that one print() should have.
  static constexpr std::size_t kMostAtOnce = 64 << 10;

  explicit CommandOutput(CommandOutputOptions options);
  // Waits until it is settled.
  ~CommandOutput();
  CommandOutput(const CommandOutput&) = delete;
  CommandOutput& operator=(const CommandOutput&) = delete;

  // These never wait.
  void print(std::string_view text) { print_to(options_.output, text); }
  void print_error(std::string_view text) { print_to(options_.errors, text); }
  // Whether there is no room for kMostAtOnce more bytes, while a reader may still take some.
  bool is_full() const;
  // Whether all is written, except what nobody takes.
  bool is_settled() const;
  // Whether standard output could not be written, as on a full disk.
  bool has_failed() const;
  // While `now` is true, waits for readers only for hurried_patience.
  void hurry(bool now);

 private:
  class Queue;

  void print_to(int file, std::string_view text);
  Queue& queue_of(int file) const;

  const CommandOutputOptions options_;
  const std::shared_ptr<Queue> output_;
  const std::shared_ptr<Queue> errors_;  // the same, if both lead to one place: order counts
};

}  // namespace belfry
