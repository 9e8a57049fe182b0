#include "belfry/towers/evaluated_means.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/neg.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

// A scalar that is known when the graph is built.
std::optional<double> known_scalar(Output x) {
  if (&x.node().op() != &kConst || x.shape().rank() != 0 || !is_floating(x.dtype()) ||
      is_half(x.dtype()))
    return {};
  const Tensor& value = x.node().options<ConstantOptions>().value;
  return visit_floating(value.dtype(),
                        [&](auto type) -> double { return value.item<decltype(type)>(); });
}

// Splits a scalar along additions, and products with constants.
class Splitter {
 public:
  explicit Splitter(std::span<const WeightedSums> weighted) : weighted_(weighted) {}

  void add(Output value, double factor) {
    const auto mean = std::ranges::find_if(
        weighted_, [&](const WeightedSums& sums) { return sums.mean == value; });
    if (factor == 0) return;
    if (mean != weighted_.end())
      terms_.push_back({factor, mean->sums});
    else if (!add_inputs(value.node(), factor))
      others_.emplace_back(value, factor);
  }

  // Of `value`, which was added.
  EvaluatedMean result(Output value) const {
    if (terms_.empty()) return {.rest = value, .terms = {}};
    const DType dtype = value.dtype();
    Output rest;
    for (const auto& [other, factor] : others_) {
      const Output wide = cast(other, dtype), scaled = factor == 1 ? wide : wide * factor;
      rest = rest ? rest + scaled : scaled;
    }
    return {.rest = rest ? rest : constant(value.graph(), 0.0, dtype, At("rest")), .terms = terms_};
  }

 private:
  // Whether the node is linear in its inputs, which are added then.
  bool add_inputs(const Node& node, double factor) {
    const Op* const op = &node.op();
    const auto input = [&](std::size_t i) { return node.input(i); };
    if (op == &kAdd || op == &kSub) {
      add(input(0), factor);
      add(input(1), op == &kAdd ? factor : -factor);
    } else if (op == &kAddN) {
      for (const Output& summand : node.inputs()) add(summand, factor);
    } else if (op == &kNeg) {
      add(input(0), -factor);
    } else if (op == &kIdentity || (op == &kCast && is_floating(input(0).dtype()))) {
      add(input(0), factor);
    } else if (op == &kMul || op == &kDiv) {
      if (const std::optional<double> right = known_scalar(input(1)))
        add(input(0), op == &kMul ? factor * *right : factor / *right);
      else if (const std::optional<double> left = known_scalar(input(0)); left && op == &kMul)
        add(input(1), factor * *left);
      else
        return false;
    } else {
      return false;
    }
    return true;
  }

  const std::span<const WeightedSums> weighted_;
  std::vector<std::pair<Output, double>> others_;  // with their factors
  std::vector<EvaluatedMean::Term> terms_;
};

}  // namespace

std::vector<EvaluatedMean> evaluated_means(const Tower& tower) {
  const std::vector<WeightedSums>& weighted = tower.links().weighted();
  std::vector<EvaluatedMean> means;
  if (weighted.empty()) return means;
  const auto split = [&](Output value) {
    Splitter splitter(weighted);
    splitter.add(value, 1);
    means.push_back(splitter.result(value));
  };
  if (tower.loss())
    split(tower.loss());
  else
    means.emplace_back();
  for (const TowerMetric& metric : tower.metrics()) {
    if (metric.is_mean())
      split(metric.value);
    else
      means.push_back({.rest = metric.value, .terms = {}});
  }
  return means;
}

}  // namespace belfry
