#include "belfry/allreduce/strategy.h"

#include <algorithm>
#include <map>
#include <utility>

#include "belfry/framework/scopes.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

std::map<std::string, StrategyFactory, std::less<>>& registry() {
  static std::map<std::string, StrategyFactory, std::less<>> strategies;
  return strategies;
}

}  // namespace

GradientTable Strategy::reduce(const GradientTable& grads, ReduceOptions options, At at) const {
  if (grads.towers() == 1) return grads;
  SiteScope site(grads.graph(), at.site);
  return grads.with(options.reduction == Reduction::kMean ? mean(grads) : sum(grads));
}

bool Strategy::canonical(int) const { return false; }

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

void register_strategy(std::string name, StrategyFactory factory) {
  require(!name.empty() && factory, "an aggregation strategy needs a name and a factory");
  const auto [entry, added] = registry().try_emplace(std::move(name), std::move(factory));
  require(added, "an aggregation strategy called '", entry->first, "' is already registered");
}

std::unique_ptr<Strategy> make_strategy(std::string_view name) {
  const auto found = registry().find(name);
  if (found != registry().end()) return found->second();
  const std::vector<std::string> names = strategy_names();
  throw InvalidArgument(cat("unknown aggregation strategy '", name, "'", did_you_mean(name, names),
                            " (strategies: ", join(names), ")"));
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const auto& [name, factory] : registry()) names.push_back(name);
  return names;
}

}  // namespace belfry
