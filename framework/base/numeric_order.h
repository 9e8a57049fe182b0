// Names in the order in which people count: cpu:2 before cpu:10.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace belfry {

// Whether a comes before b: runs of digits by their value, everything else by its characters.
bool numerically_less(std::string_view a, std::string_view b);

// The entries of a map from names, in numeric order.
template <class T>
std::vector<std::pair<std::string, T>> in_numeric_order(const std::map<std::string, T>& by_name) {
  std::vector<std::pair<std::string, T>> list(by_name.begin(), by_name.end());
  std::ranges::stable_sort(list, numerically_less, &std::pair<std::string, T>::first);
  return list;
}

}  // namespace belfry
