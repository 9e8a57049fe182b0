#include "strategy_list.h"

#include <algorithm>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace {

// The mode of a strategy. Its trainer is the requested one, else the replicated one, else the one
// that takes the strategy by default, else any that takes it.
Mode mode_for(const std::string& strategy, const std::string& trainer, int repacking) {
  std::vector<std::string> trainers = trainer_names();
  std::ranges::stable_partition(
      trainers, [&](auto& name) { return find_trainer(name).default_strategy == strategy; });
  std::ranges::stable_partition(trainers, [](auto& name) { return name == "replicated"; });
  if (!trainer.empty()) trainers = {trainer};
  for (const std::string& name : trainers) {
    const TrainerKind& kind = find_trainer(name);
    if (kind.accepts && kind.accepts(strategy)) return {name, strategy, repacking};
  }
  throw FlagError(trainer.empty() ? cat("--strategies: no trainer takes ", strategy)
                                  : cat("--strategies: --trainer=", trainer, " does not take ",
                                        strategy, "; leave one of them out"));
}

// Throws FlagError if the strategy cannot serve these devices.
void require_serves(const std::string& strategy, const TrainFlags& training) {
  const std::string flag = cat("--strategies=", strategy);
  const bool chooses = strategy == "auto";
  const std::string refusal =
      chooses ? "" : make_strategy(strategy)->refusal(training.trainer.devices);
  require<FlagError>(refusal.empty(), flag, ": ", refusal);
  require<FlagError>(!chooses || !training.links.empty(), flag, kChoosesByLinks);
}

}  // namespace

StrategyList parse_strategies(const std::string& text) {
  StrategyList list;
  for (const std::string_view part : split(text, ',')) {
    require<FlagError>(!part.empty(), "--strategies: an item of '", shown(text),
                       "' is empty; write names with one comma between, such as naive,ring");
    const std::string name = underscores_in_names(std::string(part));
    if (name == "all")
      list.all = true;
    else
      as_flag("--strategies", [&] { return parse_all_reduce_spec(name); });
    for (std::string& each : name == "all" ? strategy_names() : std::vector{name}) {
      require<FlagError>(std::ranges::find(list.names, each) == list.names.end(),
                         "--strategies=", text, ": ", each, " is there twice");
      list.automatic = list.automatic || each == "auto";
      list.names.push_back(std::move(each));
    }
  }
  return list;
}

std::vector<Mode> strategy_modes(const StrategyList& list, const std::string& trainer,
                                 const TrainFlags& training) {
  std::vector<std::string> names = list.names;
  if (list.all && !list.automatic && !training.links.empty()) names.emplace_back("auto");
  if (list.all)
    std::ranges::stable_partition(names, [](auto& name) { return name == "collective"; });
  std::vector<Mode> modes;
  for (const std::string& name : names) {
    try {
      modes.push_back(mode_for(name, trainer, training.trainer.aggregation.gradient_repacking));
      if (!list.all && training.trainer.devices.size() > 1) require_serves(name, training);
    } catch (const FlagError&) {
      if (!list.all) throw;  // this trainer does not take the strategy
    }
  }
  require<FlagError>(!modes.empty(), "--strategies: --trainer=", trainer,
                     " takes none; leave one of them out");
  return modes;
}

}  // namespace belfry
