#include "belfry/trainers/core/trainer_kinds.h"

#include <map>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/options/option.h"

namespace belfry {
namespace {

std::map<std::string, TrainerKind, std::less<>>& registry() {
  static std::map<std::string, TrainerKind, std::less<>> kinds;
  return kinds;
}

}  // namespace

std::string whose_option(const TrainerKind& kind) {
  return cat("the trainer ", kind.name, "'s option");
}

TrainerFacts TrainerKind::facts() const {
  return {.name = name,
          .takes_one_device = takes_one_device,
          .combines = combines(),
          .linear = linear,
          .updates_between = updates_between,
          .takes_async = takes_async(),
          .spreads_variables = spreads_variables(),
          .replicates_variables = replicates_variables(),
          .packs_gradients = packs_gradients,
          .makes_buckets = makes_buckets,
          .takes_partition = takes_partition};
}

void register_trainer(TrainerKind kind) {
  require(!kind.name.empty() && !kind.combine == static_cast<bool>(kind.update),
          "a trainer needs a name, and either TrainerKind::combine or TrainerKind::update");
  require(!kind.accepts == kind.default_strategy.empty(), "trainer '", kind.name,
          "' needs both `accepts` and a default strategy, or neither");
  require(kind.accepts || !(kind.packs_gradients || kind.makes_buckets), "trainer '", kind.name,
          "' packs or buckets gradients, so it needs `accepts` and a default strategy");
  require(kind.update || !kind.updates_between, "trainer '", kind.name,
          "' updates between combinations, so it needs TrainerKind::update");
  for (const OwnOption& option : kind.options) option.row(whose_option(kind));
  std::string name = kind.name;
  const auto [entry, added] = registry().try_emplace(std::move(name), std::move(kind));
  require(added, "a trainer called '", entry->first, "' is already registered");
}

std::vector<std::string> trainer_names() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : registry()) names.push_back(name);
  return names;
}

const TrainerKind& find_trainer(std::string_view name) {
  const auto found = registry().find(name);
  if (found != registry().end()) return found->second;
  const std::vector<std::string> names = trainer_names();
  throw InvalidArgument(cat("unknown trainer '", name, "'", did_you_mean(name, names),
                            " (trainers: ", join(names), ")"));
}

std::vector<std::string> accepted_strategies(bool (*accepts)(std::string_view spec)) {
  std::vector<std::string> names = strategy_names();
  std::erase_if(names, [&](const std::string& name) { return !accepts(name); });
  return names;
}

}  // namespace belfry
