// Lists of strategies: those that a trainer takes, and the flag --strategies of benchmarks.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace belfry {

// The names of the registered strategies that a trainer accepts (TrainerKind::accepts).
std::vector<std::string> accepted_strategies(bool (*accepts)(std::string_view spec));

struct StrategyList {
  std::vector<std::string> names;  // what --allreduce takes; each once
  bool all = false;                // "all" was given, and stands there as each strategy by its name
  bool automatic = false;          // "auto" is among the names
};

// Parts separated by commas, with - or _ in their names. Throws FlagError naming what is unknown,
// or there twice.
StrategyList parse_strategies(const std::string& text);

}  // namespace belfry
