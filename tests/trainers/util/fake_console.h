// A console on a clock that tests set.
#pragma once
#include <cstdio>
#include <memory>
#include <string>

#include "belfry/trainers/util/console.h"

namespace belfry {

struct FakeConsole {
  explicit FakeConsole(bool terminal = false, double per_look = 0)
      : seconds_per_look(per_look),
        console(sink.get(), {.rewrites = terminal, .columns = [this] { return columns; }},
                [this] { return now += seconds_per_look; }) {}

  // The text that was printed since the last call.
  std::string printed() {
    std::fflush(sink.get());
    std::string text(static_cast<std::size_t>(std::ftell(sink.get()) - read), '\0');
    std::fseek(sink.get(), read, SEEK_SET);
    text.resize(std::fread(text.data(), 1, text.size(), sink.get()));
    read = std::ftell(sink.get());
    return text;
  }

  std::unique_ptr<std::FILE, int (*)(std::FILE*)> sink{std::tmpfile(), std::fclose};
  long read = 0;
  int columns = 80;
  double now = 0;
  double seconds_per_look;  // added at each look at the clock
  Console console;
};

}  // namespace belfry
