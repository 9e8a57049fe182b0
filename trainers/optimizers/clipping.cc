#include "belfry/trainers/optimizers/clipping.h"

#include <algorithm>
#include <map>
#include <utility>

#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/clip.h"
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

// Where the gradient is.
Output clipped_value(Output gradient, double most, Output factor) {
  Graph& graph = gradient.graph();
  const NameScope names(graph, "clip_value");
  const DeviceScope on(graph, gradient.device());
  if (factor) gradient = gradient * cast(factor, gradient.dtype());
  return clip(gradient, -most, most);
}

}  // namespace

GradientSquares squares_of(const GradientTable& combined) {
  const NameScope names(combined.graph(), "gradient_squares");
  GradientSquares squares{.variables = {}, .sums = sums_of_squares(one_of_each(combined))};
  for (const Gradient& gradient : combined.row(0))
    if (gradient.value) squares.variables.emplace_back(gradient.variable.logical_name());
  return squares;
}

Unscaling clipped(std::span<const Output> sums, double max_norm, const Unscaling& unscaling,
                  const DeviceSpec& device) {
  Graph& graph = sums[0].graph();
  const NameScope names(graph, "clip_norm");
  const DeviceScope on(graph, device);
  const Output norm = norm_of_sums(sums, "norm");
  return {clip_factor(norm, max_norm, unscaling.factor, "factor"), unscaling.applied};
}

Unscaling clip_values(GradientRows& rows, double most, const Unscaling& unscaling,
                      const DeviceSpec& device) {
  std::map<std::pair<const Node*, int>, Output> clipped;  // rows may share a gradient
  for (std::vector<Gradient>& row : rows)
    for (Gradient& gradient : row) {
      if (!gradient.value) continue;
      Output& value = clipped[{&gradient.value.node(), gradient.value.index()}];
      if (!value) value = clipped_value(gradient.value, most, unscaling.factor);
      gradient.value = value;
    }
  if (!unscaling.applied) return {};
  Graph& graph = unscaling.applied.graph();
  const NameScope names(graph, "clip_value");
  const DeviceScope on(graph, device);
  return {cast(unscaling.applied, DType::kF32, "factor"), unscaling.applied};
}

}  // namespace belfry
