// The strategies of the library, without those that tests register.
#pragma once
#include <string>
#include <vector>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Tests register names that begin so.
inline constexpr const char* kNamesOfTests = "test_";

inline std::vector<std::string> library_strategies() {
  std::vector<std::string> names = strategy_names();
  std::erase_if(names, [](const std::string& name) { return name.starts_with(kNamesOfTests); });
  return names;
}

}  // namespace belfry
