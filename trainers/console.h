// What people read while a program trains.
#pragma once
#include <cstdio>
#include <string_view>

namespace belfry {

// Writes to a stream of the process (stdout or stderr, borrowed). On a terminal there may be one
// status line, which is rewritten in place and gives way to lines that stay.
class Console {
 public:
  explicit Console(std::FILE* stream);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  bool is_terminal() const { return terminal_; }
  // Prints a line that stays.
  void line(std::string_view text);
  // Rewrites the status line; only on terminals. Allocates nothing.
  void status(std::string_view text);

 private:
  void clear_status();

  std::FILE* stream_;
  bool terminal_;
  bool has_status_ = false;
};

// `text` without the one that it may end with.
std::string_view without_line_break(std::string_view text);

}  // namespace belfry
