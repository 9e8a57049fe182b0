#include "belfry/allreduce/strategy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "belfry/allreduce/tower_weights.h"
#include "belfry/allreduce/verify/verify.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"

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

// The value, if the weight is a constant.
std::optional<Tensor> constant_value(const Output& weight) {
  if (&weight.node().op() != &kConst) return {};
  return weight.node().options<ConstantOptions>().value;
}

// Whether the weight may say how often a gradient counts: a finite number that is not negative.
bool is_count(const Tensor& weight) {
  if (weight.dtype() == DType::kI64) return weight.data<std::int64_t>()[0] >= 0;
  if (!is_floating(weight.dtype())) return true;
  return visit_floating(weight.dtype(), [&](auto type) {
    const auto value = static_cast<double>(weight.data<decltype(type)>()[0]);
    return std::isfinite(value) && value >= 0;
  });
}

void require_weights(const GradientTable& grads, const std::vector<Output>& weights,
                     SourceLine site) {
  require(weights.empty() || std::ssize(weights) == grads.towers(), site.str(), ": ",
          weights.size(), " weights for the gradients of ", grads.towers(), " towers");
  for (std::size_t t = 0; t < weights.size(); ++t) {
    require(static_cast<bool>(weights[t]) && weights[t].shape().rank() == 0, site.str(),
            ": the weight of tower ", t,
            weights[t] ? cat(", ", weights[t].node().describe(), ", is ", weights[t].type(),
                             "; it must be a scalar")
                       : " is empty");
    const std::optional<Tensor> value = constant_value(weights[t]);
    require(!value || is_count(*value), site.str(), ": the weight of tower ", t, ", ",
            weights[t].node().describe(), ", is below 0 or not finite");
  }
}

// Whether the weights are known to be one number that may be dropped.
bool change_nothing(const std::vector<Output>& weights, Reduction reduction) {
  if (weights.empty()) return true;
  const std::optional<Tensor> first = constant_value(weights[0]);
  const double wanted = reduction == Reduction::kMean ? 0 : 1;
  const bool is_wanted = first && *first == scalar_tensor(wanted, first->dtype());
  return first && is_wanted == (reduction == Reduction::kSum) &&
         std::ranges::all_of(weights, [&](const Output& w) { return constant_value(w) == first; });
}

// A sum that requests no device, such as one placed with a variable without a device, is where its
// colocation says, whatever the outer device scopes.
template <class F>
Output divided_on(const GradientTable& sums, int tower, Output total, bool shared,
                  const F& divide) {
  if (shared && total.device().empty()) {
    const ColocateWith beside(total);
    return divide(total);
  }
  const DeviceScope on(sums.graph(), shared ? total.device() : sums.device(tower));
  return divide(total);
}

// Divides each distinct sum once, on the tower's device. If several towers share a sum, it is
// divided where it is.
template <class F>
std::vector<std::vector<Output>> divided(const GradientTable& sums, const F& divide) {
  std::vector<std::vector<Output>> means(static_cast<std::size_t>(sums.towers()));
  std::map<std::pair<int, int>, Output> done;  // by node and output of the sum
  for (int v = 0; v < sums.variables(); ++v) {
    for (int t = 0; t < sums.towers(); ++t) {
      const Output total = sums.at(t, v).value;
      Output& mean = done[total.key()];
      if (!mean) {
        mean = divided_on(sums, t, total, std::ranges::count(sums.values(v), total) > 1, divide);
      }
      means[static_cast<std::size_t>(t)].push_back(mean);
    }
  }
  return means;
}

// A strategy must sum 16 bits in f32 and round once, in one node. Other nodes would round in
// between.
void require_rounded_once(const Graph& graph, std::size_t first) {
  for (std::size_t id = first; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    const Op& op = node.op();
    if (op.half || op.alias || op.storage || node.outputs() == 0) continue;
    const DType dtype = node.output_type(0).dtype;
    require(!is_half(dtype), node.describe(), ": no host kernel for ", name_of(dtype),
            " adds up what other nodes do, rounded once; combine by a collective, or in f32");
  }
}

}  // namespace

GradientTable Strategy::reduce(const GradientTable& grads, ReduceOptions options, At at) const {
  require_weights(grads, options.weights, at.site);
  const bool several = grads.graph().process().size > 1;
  const bool mean = options.reduction == Reduction::kMean;
  const bool alone = grads.towers() == 1 && !several;
  // No process knows the weights of the others.
  const bool plain =
      several ? options.weights.empty() : change_nothing(options.weights, options.reduction);
  if (alone && plain) return grads;
  require(!several || plain || options.total_weight, at.site.str(),
          ": the weights of towers of several processes need their sum over all "
          "(ReduceOptions::total_weight)");
  const std::string why = several ? refusal_of_processes(grads.devices())
                          : alone ? ""
                                  : refusal(grads.devices());
  require(why.empty(), several ? at.site.str() + ": " : "", why);
  SiteScope site(grads.graph(), at.site);
  verify_fresh(grads);
  if (mean) verify_mean(grads);
  const std::size_t first = grads.graph().size();
  GradientTable combined = plain ? verified(grads, mean ? this->mean(grads) : sum(grads), first)
                                 : weighted(grads, options);
  require_rounded_once(grads.graph(), first);
  if (!alone) note_combined(grads, combined);
  return combined;
}

GradientTable Strategy::weighted(const GradientTable& grads, const ReduceOptions& options) const {
  const bool mean = options.reduction == Reduction::kMean;
  const bool alone = grads.towers() == 1 && grads.graph().process().size == 1;
  const std::size_t first = grads.graph().size();
  TowerWeights weights(grads, options);
  // The mean of a single tower is its gradient.
  const GradientTable scaled = grads.with(mean && alone ? weights.counted() : weights.leaves());
  if (alone) return scaled;
  const std::vector<std::vector<Output>> sums = sum(scaled);
  if (!mean) return verified(grads, sums, first);
  NameScope names(grads.graph(), "WeightedMeanGrads");
  const std::vector<std::vector<Output>> means =
      divided(grads.with(sums), [&](Output total) { return weights.mean_of(total); });
  return verified(grads, means, first);
}

std::string Strategy::refusal(const std::vector<DeviceSpec>&) const { return ""; }

std::string Strategy::refusal_of_processes(const std::vector<DeviceSpec>& devices) const {
  return cat("the strategy combines the gradients of one process, and this is one of several; use ",
             std::ranges::any_of(devices, &DeviceSpec::is_gpu) ? "nccl, collective, ring or mpi"
                                                               : "collective, ring or mpi");
}

bool Strategy::canonical(int) const { return false; }

std::vector<std::vector<Output>> Strategy::results_of(const Strategy& inner,
                                                      const GradientTable& grads,
                                                      Reduction reduction) {
  return reduction == Reduction::kMean ? inner.mean(grads) : inner.sum(grads);
}

GradientTable WrappingStrategy::combined(const GradientTable& tensors, Reduction reduction) const {
  const std::size_t first = tensors.graph().size();
  return verified(tensors, results_of(inner(), tensors, reduction), first);
}

std::unique_ptr<Strategy> Strategy::in_chunks(int) const { return nullptr; }
std::unique_ptr<Strategy> Strategy::in_one_node() const { return nullptr; }

std::vector<std::vector<Output>> Strategy::mean(const GradientTable& grads) const {
  const GradientTable sums = grads.with(sum(grads));
  NameScope names(grads.graph(), "MeanGrads");
  return divided(sums, [&](Output total) { return total / grads.towers(); });
}

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
