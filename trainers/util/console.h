// What people read while a program trains.
#pragma once
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>

#include "belfry/framework/base/before_log.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/clock.h"

namespace belfry {

// Writes to a stream of the process (stdout or stderr, borrowed), or to none (null). On a terminal
// there may be one status line, which is rewritten in place and gives way to lines that stay, those
// of the log among them.
//
// Long work says how far it is: it asks due() after each part, and shows where it is.
class Console {
 public:
  using Clock = std::function<double()>;  // seconds that never go back
  // The screen that a stream leads to.
  struct Screen {
    bool rewrites = false;              // a terminal that can rewrite a line
    std::function<int()> columns = {};  // of the terminal, at present
  };

  // Asks the stream; a terminal with TERM=dumb, or without TERM, cannot rewrite lines. Its width is
  // asked of the terminal, else of $COLUMNS, else 80.
  explicit Console(std::FILE* stream);
  Console(std::FILE* stream, Screen screen, Clock clock = seconds_now);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Whether there can be a status line.
  bool has_status() const { return screen_.rewrites; }
  // How many columns a status line may take at present. One less than the terminal has, as
  // terminals differ in what they do when the last one is written.
  std::size_t status_columns() const;
  // Lines that stay go there, too.
  void copy_to(std::function<void(std::string_view)> copy) { copy_ = std::move(copy); }
  // Prints a line that stays.
  void line(std::string_view text);
  // Rewrites the status line, with as much of `text` as fits; does nothing where there can be none.
  void status(std::string_view text);

  // Whether it is time to show how far the work is: on a terminal ten times a second at most;
  // elsewhere so often that no more than 10 s pass without a line, unless a part of the work takes
  // longer. The next part is expected to take as long as the last, since the call before this one
  // or since a line.
  bool due();
  // As the status line; where there can be none, as a line.
  void show(std::string_view text);

 private:
  void clear_status();  // under the mutex, as the next one
  void note_output();

  std::FILE* stream_;
  Screen screen_;
  Clock clock_;
  std::function<void(std::string_view)> copy_;
  double shown_at_, asked_at_;  // the last output; the last call of due(), or a later output
  std::mutex mutex_;            // any thread may log
  bool shows_status_ = false;
  std::optional<BeforeLog> before_log_;
};

// Shows cat(parts...) if that is due; does nothing without a console.
template <class... Parts>
void show_if_due(Console* console, const Parts&... parts) {
  if (console && console->due()) console->show(cat(parts...));
}

// How many columns UTF-8 text may take: one for a character of ASCII, two for any other, as it may
// be wide.
std::size_t columns_of(std::string_view text);
// The beginning of `text` that takes no more columns.
std::string_view fitting(std::string_view text, std::size_t columns);

// `text` without the one that it may end with.
std::string_view without_line_break(std::string_view text);

}  // namespace belfry
