#include "belfry/allreduce/strategy.h"

#include <algorithm>
#include <map>
#include <utility>

#include "belfry/allreduce/verify.h"
#include "belfry/framework/scopes.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

struct Entry {
  StrategyFactory factory;
  StrategyName kind;
};

std::map<std::string, Entry, std::less<>>& registry() {
  static std::map<std::string, Entry, std::less<>> strategies;
  return strategies;
}

std::vector<std::string> names_of(StrategyName kind) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : registry())
    if (entry.kind == kind) names.push_back(name);
  return names;
}

}  // namespace

GradientTable Strategy::reduce(const GradientTable& grads, ReduceOptions options, At at) const {
  if (grads.towers() == 1) return grads;
  const std::string why = refusal(grads.towers());
  require(why.empty(), why);
  SiteScope site(grads.graph(), at.site);
  if (options.reduction == Reduction::kSum) return verified(grads, sum(grads));
  verify_mean(grads);
  return verified(grads, mean(grads));
}

std::string Strategy::refusal(int) const { return ""; }

bool Strategy::canonical(int) const { return false; }

std::unique_ptr<Strategy> Strategy::in_chunks(int) const { return nullptr; }
std::unique_ptr<Strategy> Strategy::in_one_node() const { return nullptr; }

std::vector<std::vector<Output>> Strategy::mean(const GradientTable& grads) const {
  const GradientTable sums = grads.with(sum(grads));
  NameScope names(grads.graph(), "MeanGrads");
  std::vector<std::vector<Output>> means(static_cast<std::size_t>(grads.towers()));
  std::map<std::pair<int, int>, Output> done;  // of each sum, by node and output
  for (int v = 0; v < grads.variables(); ++v) {
    for (int t = 0; t < grads.towers(); ++t) {
      const Output total = sums.at(t, v).value;
      Output& mean = done[{total.node().id(), total.index()}];
      if (!mean) {
        const bool shared = std::ranges::count(sums.values(v), total) > 1;
        DeviceScope on(grads.graph(), shared ? total.device() : grads.device(t));
        mean = total / grads.towers();
      }
      means[static_cast<std::size_t>(t)].push_back(mean);
    }
  }
  return means;
}

void register_strategy(std::string name, StrategyFactory factory, StrategyName kind) {
  require(!name.empty() && factory, "an aggregation strategy needs a name and a factory");
  require(name != "auto" && name.find_first_of(":#, \t\r\n") == std::string::npos,
          "an aggregation strategy cannot be called '", name,
          "': 'auto' and the characters : # , and blanks have a meaning of their own");
  const auto [entry, added] =
      registry().try_emplace(std::move(name), Entry{std::move(factory), kind});
  require(added, "an aggregation strategy called '", entry->first, "' is already registered");
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
