// The flag --strategies of benchmarks: a list of strategies.
#pragma once
#include <string>
#include <vector>

namespace belfry {

struct StrategyList {
  std::vector<std::string> names;  // what --allreduce takes; each once
  bool all = false;                // "all" was given, and stands there as each strategy by its name
  bool automatic = false;          // "auto" is among the names
};

// Parts separated by commas, with - or _ in their names. Throws FlagError naming what is unknown,
// or there twice.
StrategyList parse_strategies(const std::string& text);

}  // namespace belfry
