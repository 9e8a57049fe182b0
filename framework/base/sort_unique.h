#pragma once
#include <algorithm>
#include <functional>
#include <vector>

namespace belfry {

// Sorts by `key`, and keeps one of equal elements.
template <class T, class Key = std::identity>
void sort_unique(std::vector<T>& all, Key key = {}) {
  std::ranges::sort(all, {}, key);
  const auto repeated = std::ranges::unique(all, {}, key);
  all.erase(repeated.begin(), repeated.end());
}

}  // namespace belfry
