#include "belfry/allreduce/tower_weights.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "belfry/allreduce/pieces.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/weigh.h"

namespace belfry {
namespace {

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

}  // namespace

void require_weights(const GradientTable& grads, const ReduceOptions& options, SourceLine site) {
  const std::vector<Output>& weights = options.weights;
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
  require(grads.graph().process().size == 1 || weights.empty() || options.total_weight, site.str(),
          ": the weights of towers of several processes need their sum over all "
          "(ReduceOptions::total_weight)");
}

bool weights_matter(const GradientTable& grads, const ReduceOptions& options) {
  const std::vector<Output>& weights = options.weights;
  if (weights.empty() || grads.graph().process().size > 1) return !weights.empty();
  const std::optional<Tensor> first = constant_value(weights[0]);
  const double wanted = options.reduction == Reduction::kMean ? 0 : 1;
  const bool is_wanted = first && *first == scalar_tensor(wanted, first->dtype());
  return !first || is_wanted != (options.reduction == Reduction::kSum) ||
         !std::ranges::all_of(weights, [&](const Output& w) { return constant_value(w) == first; });
}

GradientTable TowerWeights::applied() {
  const bool alone = grads_.towers() == 1 && grads_.graph().process().size == 1;
  const auto apply = alone && options_.reduction == Reduction::kMean ? if_counted : weigh;
  const NameScope names(grads_.graph(), "WeightedGrads");
  OutputRows rows;
  for (int t = 0; t < grads_.towers(); ++t) {
    std::vector<Output>& row = rows.emplace_back();
    for (const Gradient& g : grads_.row(t)) {
      const DeviceScope on(grads_.graph(), grads_.device(t));
      row.push_back(apply(g.value, of(t, g.value.dtype()), {}));
    }
  }
  return grads_.with(rows);
}

OutputRows TowerWeights::means(const GradientTable& sums) {
  const NameScope names(grads_.graph(), "WeightedMeanGrads");
  return divided(sums, [&](Output sum) { return mean_of(sum); });
}

Output TowerWeights::mean_of(Output sum) { return unweigh(sum, total(sum.dtype())); }

// The weight of a tower in the dtype of gradients, on the tower's device.
Output TowerWeights::of(int t, DType dtype) {
  Output& weight = cast_[{t, dtype}];
  if (!weight) {
    const ColocateWith nothing(grads_.graph(), nullptr);
    const DeviceScope on(grads_.graph(), grads_.device(t));
    weight = cast(options_.weights[static_cast<std::size_t>(t)], dtype);
  }
  return weight;
}

Output TowerWeights::total(DType dtype) {
  Output& total = cast_[{-1, dtype}];
  if (!total) {
    const Output given = options_.total_weight;  // over all processes, if there are several
    std::vector<Output> all;
    for (int t = 0; !given && t < grads_.towers(); ++t) all.push_back(of(t, dtype));
    // The sum that it divides may be anywhere.
    const ColocateWith nothing(grads_.graph(), nullptr);
    const DeviceScope on(grads_.graph(), grads_.device(0));
    total = given ? cast(given, dtype) : add_n(all);
  }
  return total;
}

}  // namespace belfry
