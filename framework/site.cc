#include "belfry/framework/site.h"

#include "belfry/framework/text.h"

namespace belfry {

std::string_view Site::file_name() const {
  const std::string_view path = file;
  return path.substr(path.rfind('/') + 1);
}

std::string Site::str() const { return cat(file_name(), ":", line); }

}  // namespace belfry
