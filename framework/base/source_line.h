// Where in the user's program a node was built. Every error and explanation quotes it.
#pragma once
#include <cstring>
#include <string>
#include <string_view>

namespace belfry {

struct SourceLine {
  const char* file = "";
  unsigned line = 0;  // 0: not known
  bool exact = true;  // false: somewhere after this line

  bool operator==(const SourceLine&) const = default;

  // The caller's line. It is unknown if the caller is the standard library, as in
  //   std::make_unique<DeviceScope>(graph, "/gpu:0")
  // Then errors name the line of the graph's newest node, "model.cc:41 or later". To have your own
  // line named, pass it as the last argument: SourceLine::here(), or for a builder
  // At(SourceLine::here()).
  static SourceLine here(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    // Headers of libstdc++ and libc++ lie in this folder with every compiler. Tested inline, so
    // that the compiler evaluates it once per caller.
    return std::strstr(file, "/include/c++/") ? SourceLine() : SourceLine{file, line};
  }

  bool known() const { return line != 0; }
  // "model.cc": without directories.
  std::string_view file_name() const;
  // "model.cc:41", "model.cc:41 or later" or "a line that is not known".
  std::string str() const;
};

// Last parameter of every builder: an optional name, and the caller's line.
//   relu(x)   relu(x, "act")
struct At {
  At(SourceLine caller = SourceLine::here(__builtin_FILE(), __builtin_LINE()))
      : site(caller) {}  // NOLINT
  At(std::string_view wanted,
     SourceLine caller = SourceLine::here(__builtin_FILE(), __builtin_LINE()))  // NOLINT
      : name(wanted), site(caller) {}
  At(const char* wanted,
     SourceLine caller = SourceLine::here(__builtin_FILE(), __builtin_LINE()))  // NOLINT
      : name(wanted), site(caller) {}

  std::string_view name;  // "" derives one from the op
  SourceLine site;
};

}  // namespace belfry
