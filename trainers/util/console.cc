#include "belfry/trainers/util/console.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

namespace belfry {
namespace {

constexpr int kUsualColumns = 80;
constexpr double kSecondsBetweenUpdates = 0.1;
constexpr double kMostSecondsBetweenLines = 10;

void write(std::FILE* stream, std::string_view text) {
  if (stream) std::fwrite(text.data(), 1, text.size(), stream);
}

void flush(std::FILE* stream) {
  if (stream) std::fflush(stream);  // fflush of null flushes all streams
}

std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

int terminal_columns(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const std::string_view text = environment("COLUMNS");
  int columns = 0;
  std::from_chars(text.data(), text.data() + text.size(), columns);
  return columns > 0 ? columns : kUsualColumns;
}

Console::Screen screen_of(std::FILE* stream) {
  if (!stream) return {};
  const int descriptor = fileno(stream);
  const std::string_view term = environment("TERM");
  return {.rewrites = isatty(descriptor) == 1 && !term.empty() && term != "dumb",
          .columns = [descriptor] { return terminal_columns(descriptor); }};
}

// The columns that a byte of UTF-8 adds: none if it continues a character.
std::size_t columns_of_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte < 0x80) return 1;
  return (byte & 0xC0) == 0x80 ? 0 : 2;
}

}  // namespace

Console::Console(std::FILE* stream) : Console(stream, screen_of(stream)) {}

Console::Console(std::FILE* stream, Screen screen, Clock clock)
    : stream_(stream),
      screen_(std::move(screen)),
      clock_(std::move(clock)),
      shown_at_(clock_()),
      asked_at_(shown_at_) {
  if (!has_status()) return;
  before_log_.emplace([this] {
    const std::lock_guard lock(mutex_);
    clear_status();
    flush(stream_);
  });
}

Console::~Console() {
  before_log_.reset();
  clear_status();
}

std::size_t Console::status_columns() const {
  return static_cast<std::size_t>(std::max(screen_.columns() - 1, 0));
}

void Console::line(std::string_view text) {
  const std::lock_guard lock(mutex_);
  clear_status();
  write(stream_, text);
  write(stream_, "\n");
  flush(stream_);
  if (copy_) copy_(text);
  note_output();
}

void Console::status(std::string_view text) {
  if (!has_status()) return;
  const std::lock_guard lock(mutex_);
  write(stream_, "\r\x1b[K");
  write(stream_, fitting(text, status_columns()));
  flush(stream_);
  shows_status_ = true;
  note_output();
}

bool Console::due() {
  const std::lock_guard lock(mutex_);
  const double now = clock_(), since = now - shown_at_;
  const double part = now - std::exchange(asked_at_, now);
  return has_status() ? since >= kSecondsBetweenUpdates : since + part > kMostSecondsBetweenLines;
}

void Console::show(std::string_view text) {
  if (has_status())
    status(text);
  else
    line(text);
}

void Console::note_output() { shown_at_ = asked_at_ = clock_(); }

void Console::clear_status() {
  if (shows_status_) write(stream_, "\r\x1b[K");
  shows_status_ = false;
}

std::string_view fitting(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  for (std::size_t taken = 0; end < text.size(); ++end) {
    taken += columns_of_byte(text[end]);
    if (taken > columns) break;
  }
  return text.substr(0, end);
}

std::size_t columns_of(std::string_view text) {
  std::size_t taken = 0;
  for (const char c : text) taken += columns_of_byte(c);
  return taken;
}

std::string_view without_line_break(std::string_view text) {
  return text.substr(0, text.size() - (text.ends_with('\n') ? 1 : 0));
}

}  // namespace belfry
