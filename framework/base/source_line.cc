#include "belfry/framework/base/source_line.h"

#include "belfry/framework/base/text.h"

namespace belfry {

// Headers of libstdc++ and libc++ lie in .../include/c++/, wherever a compiler is installed.
SourceLine SourceLine::here(const char* file, unsigned line) {
  const bool is_library = std::string_view(file).find("/include/c++/") != std::string_view::npos;
  return is_library ? SourceLine() : SourceLine{file, line};
}

std::string_view SourceLine::file_name() const {
  const std::string_view path = file;
  return path.substr(path.rfind('/') + 1);
}

std::string SourceLine::str() const {
  return known() ? cat(file_name(), ":", line, exact ? "" : " or later")
                 : "a line that is not known";
}

}  // namespace belfry
