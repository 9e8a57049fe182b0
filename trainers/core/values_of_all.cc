#include "belfry/trainers/core/values_of_all.h"

#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

// StepNodes::of_all_towers.
Output losses_of_all(Graph& graph, std::span<const TowerRecord> towers, Output request) {
  std::vector<Output> values;
  for (const TowerRecord& tower : towers) {
    values.push_back(reshape(cast(tower.loss, DType::kF64), {1}));
    for (const NamedOutput& metric : tower.metrics)
      values.push_back(reshape(cast(metric.value, DType::kF64), {1}));
  }
  values.push_back(reshape(request, {1}));
  return gather_over_processes(concat(values, 0), graph.process());
}

}  // namespace

void add_values_of_all(Graph& graph, TrainingGraph& built) {
  NameScope names(graph, "values_of_all_towers");
  const HostScope on(graph, built.towers[0].device);  // messages are memory of hosts
  const Output request = placeholder(graph, "request", DType::kF64, {});
  const Output values = losses_of_all(graph, built.towers, request);
  for (StepNodes& step : built.steps) {
    step.of_all_towers = values;
    step.request = request;
  }
}

}  // namespace belfry
