#include "belfry/framework/base/source_line.h"

#include "belfry/framework/base/text.h"

namespace belfry {

std::string_view SourceLine::file_name() const {
  const std::string_view path = file;
  return path.substr(path.rfind('/') + 1);
}

std::string SourceLine::str() const {
  return known() ? cat(file_name(), ":", line, exact ? "" : " or later")
                 : "a line that is not known";
}

}  // namespace belfry
