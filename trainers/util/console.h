// The output that people read while a program trains.
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
// there may be one status line, which is rewritten in place. Lines that stay, such as those of the
// log, replace it.
//
// Long work asks due() after each part, and shows its progress if that says so.
class Console {
 public:
  using Clock = std::function<double()>;  // returns seconds that never go back
  // The screen that a stream leads to.
  struct Screen {
    bool rewrites = false;              // a terminal that can rewrite a line
    std::function<int()> columns = {};  // of the terminal now
  };

  // Asks the stream. A terminal with TERM=dumb, or without TERM, cannot rewrite lines. The width is
  // that of the terminal, else $COLUMNS, else 80.
  explicit Console(std::FILE* stream);
  Console(std::FILE* stream, Screen screen, Clock clock = seconds_now);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Whether there can be a status line.
  bool has_status() const { return screen_.rewrites; }
  // The columns that a status line may take now. It leaves one column free, as terminals differ in
  // what they do when the last one is written.
  std::size_t status_columns() const;
  // `copy` also gets each line that stays.
  void copy_to(std::function<void(std::string_view)> copy) { copy_ = std::move(copy); }
  // Prints a line that stays.
  void line(std::string_view text);
  // Rewrites the status line with as much of `text` as fits. Does nothing without a status line.
  void status(std::string_view text);

  // Whether it is time to show progress. On a terminal this is at most ten times a second.
  // Elsewhere at most 10 s pass without a line, unless one part of the work takes longer. It
  // expects the next part to take as long as the last one, measured from the last call or line.
  bool due();
  // Shows `text` as the status line; without a status line, as a line.
  void show(std::string_view text);

 private:
  void clear_status();  // holds the mutex, as does the next one
  void note_output();

  std::FILE* stream_;
  Screen screen_;
  Clock clock_;
  std::function<void(std::string_view)> copy_;
  double shown_at_, asked_at_;  // times of the last output; of the last due() or a later output
  std::mutex mutex_;            // any thread may log
  bool shows_status_ = false;
  std::optional<BeforeLog> before_log_;
};

// Shows cat(parts...) if that is due; does nothing without a console.
template <class... Parts>
void show_if_due(Console* console, const Parts&... parts) {
  if (console && console->due()) console->show(cat(parts...));
}

// The columns that UTF-8 text may take: one for a character of ASCII, two for any other, as it may
// be wide.
std::size_t columns_of(std::string_view text);
// The beginning of `text` that takes no more than `columns`.
std::string_view fitting(std::string_view text, std::size_t columns);

// `text` without a line break at its end.
std::string_view without_line_break(std::string_view text);

}  // namespace belfry
