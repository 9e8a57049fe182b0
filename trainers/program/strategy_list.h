// The flag --strategies of benchmarks: a list of strategies, and the modes that it stands for.
#pragma once
#include <string>
#include <vector>

#include "belfry/trainers/bench/modes.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {

struct StrategyList {
  std::vector<std::string> names;  // what --allreduce takes; each once
  bool all = false;                // "all" was given, and stands there as each strategy by its name
  bool automatic = false;          // "auto" is among the names
};

// Parts separated by commas, with - or _ in their names. Throws FlagError naming what is unknown,
// or there twice.
StrategyList parse_strategies(const std::string& text);

// A mode per strategy: of `trainer`, or, if that is "", of the replicated one, of the one that
// takes the strategy by default, or of any that does. Of "all": those that the trainer takes,
// collective first, as what others are compared with, and "auto". Of a list of names, throws
// FlagError for one that the trainer does not take, or that cannot serve these devices.
std::vector<Mode> strategy_modes(const StrategyList& list, const std::string& trainer,
                                 const TrainFlags& training);

}  // namespace belfry
