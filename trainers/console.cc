#include "belfry/trainers/console.h"

#include <unistd.h>

namespace belfry {
namespace {

void write(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
}

}  // namespace

Console::Console(std::FILE* stream) : stream_(stream), terminal_(isatty(fileno(stream)) == 1) {}

Console::~Console() { clear_status(); }

void Console::line(std::string_view text) {
  clear_status();
  write(stream_, text);
  write(stream_, "\n");
  std::fflush(stream_);
}

void Console::status(std::string_view text) {
  if (!terminal_) return;
  write(stream_, "\r\x1b[K");
  write(stream_, text);
  std::fflush(stream_);
  has_status_ = true;
}

void Console::clear_status() {
  if (has_status_) write(stream_, "\r\x1b[K");
  has_status_ = false;
}

std::string_view without_line_break(std::string_view text) {
  return text.substr(0, text.size() - (text.ends_with('\n') ? 1 : 0));
}

}  // namespace belfry
