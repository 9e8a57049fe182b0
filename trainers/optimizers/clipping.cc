#include "belfry/trainers/optimizers/clipping.h"

#include <algorithm>

#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/updates/global_norm.h"

namespace belfry {
namespace {

// A value of each variable, where towers with copies of all have about as much each.
std::vector<Output> one_of_each(const GradientTable& table) {
  const int copies = table.shares_variables() ? 1 : table.towers();
  std::vector<std::int64_t> elements(static_cast<std::size_t>(copies), 0);
  std::vector<Output> values;
  for (int v = 0; v < table.variables(); ++v) {
    const auto least = std::ranges::min_element(elements);
    const Output value = table.at(static_cast<int>(least - elements.begin()), v).value;
    if (!value) continue;
    *least += value.shape().elements();
    values.push_back(value);
  }
  return values;
}

}  // namespace

Unscaling clipped(const GradientTable& combined, double max_norm, const Unscaling& unscaling) {
  if (max_norm == 0) return unscaling;
  Graph& graph = combined.graph();
  const NameScope names(graph, "clip_norm");
  const DeviceScope on(graph, combined.device(0));
  return clipped_by(global_norm(one_of_each(combined), "norm"), max_norm, unscaling);
}

Unscaling clipped_by(Output norm, double max_norm, const Unscaling& unscaling) {
  return {clip_factor(norm, max_norm, unscaling.factor, "factor"), unscaling.applied};
}

}  // namespace belfry
