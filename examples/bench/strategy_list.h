// The flag --strategies of benchmarks: a list of strategies, and the modes for them.
#pragma once
#include <string>
#include <vector>

#include "belfry/trainers/modes/modes.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {

struct StrategyList {
  std::vector<std::string> names;  // values of --allreduce, each once
  bool all = false;                // "all" was given, which stands for the name of each strategy
  bool automatic = false;          // "auto" is among the names
};

// Reads names separated by commas, with - or _ in them. Throws FlagError naming the one that is
// unknown or given twice.
StrategyList parse_strategies(const std::string& text);

// A mode per strategy. Its trainer is `trainer`. If that is "", it is the replicated one, else the
// one that takes the strategy by default, else any that takes it. "all" gives the strategies that
// the trainer takes, with "auto" if --links describes a machine, and with collective first as
// baseline. For a list of names,
// throws FlagError for one that the trainer does not take, or that cannot serve these devices.
std::vector<Mode> strategy_modes(const StrategyList& list, const std::string& trainer,
                                 const TrainFlags& training);

}  // namespace belfry
