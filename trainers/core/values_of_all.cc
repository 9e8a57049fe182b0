#include "belfry/trainers/core/values_of_all.h"

#include <map>

#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/group/processes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"

namespace belfry {
namespace {

// A row of all elements, f64. Shards have partial sums of a value, which a wider type would add
// with other bits than the value's own. A slice takes their sum.
Output row_of(Output value) {
  const std::int64_t size = value.shape().elements();
  return cast(slice(reshape(value, {size}), {0}, {size}), DType::kF64);
}

// StepNodes::of_all_towers.
Output losses_of_all(Graph& graph, std::span<const TowerRecord> towers, Output request) {
  std::vector<Output> values;
  for (const TowerRecord& tower : towers) {
    values.push_back(row_of(tower.loss));
    for (const TowerMetric& metric : tower.metrics)
      if (!metric.has_scores()) values.push_back(row_of(metric.value));
  }
  values.push_back(request);
  return gather_over_processes(concat(values, 0), graph.process());
}

}  // namespace

void add_values_of_all(Graph& graph, TrainedLoss& built) {
  NameScope names(graph, "values_of_all_towers");
  const HostScope on(graph, built.towers[0].device);  // messages are memory of hosts
  const Output request = placeholder(graph, "request", DType::kF64, {kNumbersOfRequest});
  std::map<std::size_t, Output> values;  // by bucket
  for (StepNodes& step : built.steps) {
    Output& of_step = values[step.batch.bucket];
    if (!of_step) of_step = losses_of_all(graph, built.towers_of(step.batch), request);
    step.of_all_towers = of_step;
    step.request = request;
  }
}

std::string of_any_process(Processes* processes, const std::string& own) {
  if (!processes) return own;
  for (const std::string& text : processes->gather(own))
    if (!text.empty()) return text;
  return "";
}

}  // namespace belfry
