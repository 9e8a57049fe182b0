// Where in the user's program a node was built. Every error and explanation quotes it.
#pragma once
#include <string>
#include <string_view>

namespace belfry {

struct Site {
  const char* file = "";
  unsigned line = 0;

  static Site here(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line};
  }
  // "model.cc": without directories.
  std::string_view file_name() const;
  // "model.cc:41".
  std::string str() const;
};

// Last parameter of every builder: an optional name, and the caller's line.
//   relu(x)   relu(x, "act")
struct At {
  At(Site caller = Site::here(__builtin_FILE(), __builtin_LINE())) : site(caller) {}  // NOLINT
  At(std::string_view wanted,
     Site caller = Site::here(__builtin_FILE(), __builtin_LINE()))  // NOLINT
      : name(wanted), site(caller) {}
  At(const char* wanted, Site caller = Site::here(__builtin_FILE(), __builtin_LINE()))  // NOLINT
      : name(wanted), site(caller) {}

  std::string_view name;  // "" derives one from the op
  Site site;
};

}  // namespace belfry
