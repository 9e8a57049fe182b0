// A few of many names, for messages.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "belfry/framework/base/text.h"

namespace belfry {

// "a, b, c and 9 more": at most eight of the names, shown() each.
inline std::string some_names(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) texts.push_back(shown(names[i]));
  return cat(join(texts), names.size() > kMost ? cat(" and ", names.size() - kMost, " more") : "");
}

}  // namespace belfry
