// The registry of strategies.
#include <map>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

struct Registered {
  StrategyFactory factory;
  StrategyName kind;
  std::string stands_for = {};  // name of a strategy in the menu
};

std::map<std::string, Registered, std::less<>>& registry() {
  static std::map<std::string, Registered, std::less<>> strategies;
  return strategies;
}

std::vector<std::string> names_of(StrategyName kind) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : registry())
    if (entry.kind == kind) names.push_back(name);
  return names;
}

}  // namespace

void register_strategy(std::string name, StrategyFactory factory, StrategyName kind) {
  require(!name.empty() && factory, "an aggregation strategy needs a name and a factory");
  require(name != "auto" && name != "all" && name.find_first_of(":#,- \t\r\n") == std::string::npos,
          "an aggregation strategy cannot be called '", name,
          "': 'auto', 'all', and the characters : # , - and blanks have a meaning of their own");
  const auto [entry, added] =
      registry().try_emplace(std::move(name), Registered{std::move(factory), kind});
  require(added, "an aggregation strategy called '", entry->first, "' is already registered");
}

void register_alias(std::string name, std::string stands_for) {
  register_strategy(
      name, [stands_for] { return make_named_strategy(stands_for); }, StrategyName::kAlias);
  registry().find(name)->second.stands_for = std::move(stands_for);
}

std::string main_strategy_name(std::string_view name) {
  const auto found = registry().find(name);
  const bool alias = found != registry().end() && !found->second.stands_for.empty();
  return alias ? found->second.stands_for : std::string(name);
}

std::unique_ptr<Strategy> make_named_strategy(std::string_view name) {
  const auto found = registry().find(name);
  if (found != registry().end()) return found->second.factory();
  std::vector<std::string> all = strategy_names();
  const std::vector<std::string> aliases = names_of(StrategyName::kAlias);
  const std::string list = cat("strategies: ", join(all), "; aliases: ", join(aliases));
  all.insert(all.end(), aliases.begin(), aliases.end());
  throw InvalidArgument(cat("unknown aggregation strategy '", shown(name), "'",
                            did_you_mean(shown(name), all), " (", list, ")"));
}

std::vector<std::string> strategy_names() { return names_of(StrategyName::kMain); }

}  // namespace belfry
