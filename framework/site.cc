#include "belfry/framework/site.h"

#include "belfry/framework/text.h"

namespace belfry {

std::string Site::str() const {
  const std::string_view path = file;
  return cat(path.substr(path.rfind('/') + 1), ":", line);
}

}  // namespace belfry
