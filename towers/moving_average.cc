#include "belfry/towers/moving_average.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/normalization/combine_moments.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/weigh.h"

namespace belfry {
namespace {

std::string describe(const BatchMoments& layer) {
  return cat("'", layer.mean_average.logical_name(), "' (built at ", layer.site, ")");
}

void require_same_layers(const std::vector<BatchMoments>& main,
                         const std::vector<BatchMoments>& other, std::size_t t) {
  for (std::size_t i = 0; i < std::min(main.size(), other.size()); ++i) {
    require(main[i].mean_average == other[i].mean_average, "batch norm number ", i, " moves ",
            describe(main[i]), " in tower 0, but ", describe(other[i]), " in tower ", t);
    require(main[i].momentum == other[i].momentum, "batch norm number ", i, " moves ",
            describe(main[i]), " with momentum ", main[i].momentum, " in tower 0, but ",
            describe(other[i]), " with ", other[i].momentum, " in tower ", t);
  }
  if (main.size() == other.size()) return;
  const auto& longer = main.size() > other.size() ? main : other;
  const auto& shorter = main.size() > other.size() ? other : main;
  throw InvalidArgument(
      cat("batch norm number ", shorter.size(), " moves ", describe(longer[shorter.size()]),
          " in tower ", main.size() > other.size() ? 0 : t, ", but tower ",
          main.size() > other.size() ? t : 0, " has ",
          shorter.empty() ? std::string("none") : "only those up to " + describe(shorter.back())));
}

// The last node of the step so far that moves an average, if there is one.
Node* last_update(const Graph& graph, Variable average, std::string_view collection) {
  const std::vector<Node*> updates = graph.nodes(collection);
  const auto found = std::find_if(updates.rbegin(), updates.rend(), [&](const Node* update) {
    return update->op().writes > 0 && &update->input(0).node() == &average.node();
  });
  return found == updates.rend() ? nullptr : *found;
}

void move_average(Variable average, Output batch, double momentum, const AverageOptions& options) {
  Graph& graph = average.node().graph();
  Node* const last = last_update(graph, average, options.collection);
  ControlDependencies after(graph, last ? std::vector<Node*>{last} : std::vector<Node*>());
  const Output value = last ? average.read() : static_cast<Output>(average);
  Output change = (value - batch) * (1 - momentum);
  if (options.applied) change = if_counted(change, cast(options.applied, change.dtype()));
  graph.add_to_collection(options.collection, assign_sub(average, change));
}

// Corrects a population variance to estimate that of the distribution.
Output unbiased(Output variance, const ValueCount& values) {
  if (!values) return variance;
  const double n = values.known;
  if (n > 0) return n > 1 ? variance * (n / (n - 1)) : variance;
  const Output least_one = relu(values.counted - 2.0) + 1.0;
  return variance * (values.counted / least_one);
}

// The values of `towers` towers that each have as many as this one.
ValueCount values_of_equal(const BatchMoments& layer, std::int64_t towers) {
  const auto factor = static_cast<double>(towers);
  if (layer.values.known > 0) return {.known = layer.values.known * factor};
  if (!layer.values.counted || layer.synchronised) return layer.values;
  return {.counted = layer.values.counted * factor};
}

// A scalar with the count, which exists.
Output count_of(const BatchMoments& layer) {
  const ValueCount& values = layer.values;
  if (values.counted) return values.counted;
  return constant(layer.mean.graph(), values.known, layer.mean.dtype(), "values");
}

// The values of a layer in the towers that have samples, or in all towers.
ValueCount values_of_all(std::span<const std::vector<BatchMoments>> towers, std::size_t layer,
                         std::span<const std::int64_t> samples) {
  const BatchMoments& main = towers[0][layer];
  if (!main.values) return {};
  if (samples.empty()) return values_of_equal(main, std::ssize(towers));
  if (main.synchronised) return {.counted = main.values.counted};
  std::vector<Output> counts;
  ValueCount all;
  for (std::size_t t = 0; t < towers.size(); ++t) {
    if (samples[t] == 0) continue;
    const BatchMoments& of_tower = towers[t][layer];
    all.known += of_tower.values.known;
    counts.push_back(count_of(of_tower));
    if (of_tower.values.known == 0) all.counted = counts.back();
  }
  return all.counted ? ValueCount{.counted = add_n(counts)} : all;
}

// The moments of a layer over all towers.
Moments combined(std::span<const std::vector<BatchMoments>> towers, std::size_t layer,
                 std::span<const std::int64_t> samples) {
  const BatchMoments& main = towers[0][layer];
  std::vector<Output> means, variances, counts;
  for (std::size_t t = 0; t < towers.size(); ++t) {
    if (!samples.empty() && samples[t] == 0) continue;
    means.push_back(towers[t][layer].mean);
    variances.push_back(towers[t][layer].variance);
    if (!samples.empty())
      counts.push_back(constant(main.mean.graph(), static_cast<double>(samples[t]),
                                main.mean.dtype(), "samples"));
  }
  if (std::ranges::count(means, means[0]) == std::ssize(means) && towers.size() > 1)
    return {means[0], variances[0]};
  return combine_moments(means, variances, counts);
}

// The moments of a tower's own batch as one row [1, n]; none if all are synchronised.
std::optional<Output> row_of(const std::vector<BatchMoments>& tower) {
  std::vector<Output> moments;
  for (const BatchMoments& layer : tower)
    if (!layer.synchronised) {
      moments.insert(moments.end(), {layer.mean, layer.variance});
      if (layer.values) moments.push_back(reshape(count_of(layer), {1}));
    }
  if (moments.empty()) return {};
  const Output all = concat(moments, 0);
  return reshape(all, {1, all.shape().elements()});
}

// Gathers the moments of the towers of all processes. A process sends its own as one message.
std::vector<std::vector<BatchMoments>> of_all_processes(
    std::span<const std::vector<BatchMoments>> towers) {
  const BatchMoments& first = towers[0][0];
  Graph& graph = first.mean.graph();
  HostScope host(graph, first.mean_average.device());
  std::vector<Output> rows;
  for (const std::vector<BatchMoments>& tower : towers)
    if (const std::optional<Output> row = row_of(tower)) rows.push_back(*row);
  Output gathered;
  if (!rows.empty()) gathered = gather_over_processes(concat(rows, 0), graph.process());
  std::vector<std::vector<BatchMoments>> all;
  for (std::int64_t t = 0; t < graph.process().size * std::ssize(towers); ++t) {
    std::int64_t taken = 0;
    const auto next = [&](const Shape& shape) {
      const std::int64_t from = std::exchange(taken, taken + shape[0]);
      return reshape(slice(gathered, {t, from}, {1, shape[0]}), shape);
    };
    for (BatchMoments& layer : all.emplace_back(towers[0])) {
      if (layer.synchronised) continue;
      layer.mean = next(layer.mean.shape());
      layer.variance = next(layer.variance.shape());
      if (layer.values) layer.values = {.counted = reshape(next({1}), {})};
    }
  }
  return all;
}

// The row that a tower sends if all batches count equally: per layer mean, variance and a count of
// one, as CombineGathered takes them.
std::optional<Output> counted_row_of(std::span<const BatchMoments> tower) {
  Graph& graph = tower[0].mean.graph();
  std::vector<Output> moments;
  for (const BatchMoments& layer : tower) {
    if (layer.synchronised) continue;
    const Output one = reshape(constant(graph, 1.0, layer.mean.dtype()), {1});
    moments.insert(moments.end(), {layer.mean, layer.variance, one});
  }
  if (moments.empty()) return {};
  const Output all = concat(moments, 0);
  return reshape(all, {1, all.shape().elements()});
}

// Moves the averages as of_all_processes() would, but with one node per layer, however many towers
// other processes have.
void move_averages_by_rows(Graph& graph, std::span<const std::vector<BatchMoments>> towers,
                           const AverageOptions& options) {
  HostScope host(graph, towers[0][0].mean_average.device());
  std::vector<Output> rows;
  for (const std::vector<BatchMoments>& tower : towers)
    if (const std::optional<Output> row = counted_row_of(tower)) rows.push_back(*row);
  Output gathered;
  if (!rows.empty()) gathered = gather_over_processes(concat(rows, 0), graph.process());
  std::int64_t taken = 0;
  for (const BatchMoments& layer : towers[0]) {
    SiteScope site(graph, layer.site);
    HostScope beside(graph, layer.mean_average.device());
    Moments batch{layer.mean, layer.variance};
    if (!layer.synchronised) {
      const std::int64_t columns = 2 * layer.mean.shape()[0] + 1;
      const Output of_layer = slice(gathered, {0, taken}, {gathered.shape()[0], columns});
      const Node& all = graph.add(kCombineGathered, {of_layer});
      batch = {all.output(0), all.output(1)};
      taken += columns;
    }
    move_average(layer.mean_average, batch.mean, layer.momentum, options);
    const ValueCount values = values_of_equal(layer, graph.process().size * std::ssize(towers));
    move_average(layer.variance_average, unbiased(batch.variance, values), layer.momentum, options);
  }
}

// Moves the averages of all layers.
void move_averages(Graph& graph, std::span<const std::vector<BatchMoments>> towers,
                   const AverageOptions& options) {
  for (std::size_t layer = 0; layer < towers[0].size(); ++layer) {
    const BatchMoments& main = towers[0][layer];
    SiteScope site(graph, main.site);
    HostScope host(graph, main.mean_average.device());
    const Moments batch = combined(towers, layer, options.samples);
    move_average(main.mean_average, batch.mean, main.momentum, options);
    const ValueCount values = values_of_all(towers, layer, options.samples);
    move_average(main.variance_average, unbiased(batch.variance, values), main.momentum, options);
  }
}

}  // namespace

void update_moving_averages(Graph& graph, std::span<const std::vector<BatchMoments>> towers,
                            const AverageOptions& options) {
  const std::span<const std::int64_t> samples = options.samples;
  for (std::size_t t = 1; t < towers.size(); ++t) require_same_layers(towers[0], towers[t], t);
  if (towers.empty() || towers[0].empty()) return;
  const std::size_t all =
      towers.size() * static_cast<std::size_t>(std::max(1, graph.process().size));
  require<InternalError>(
      samples.empty() ||
          (samples.size() == all && std::ranges::any_of(samples, [](auto n) { return n > 0; })),
      "moving averages of ", all, " towers with ", samples.size(), " numbers of samples");
  NameScope root(graph, "");
  NameScope names(graph, "moving_averages");
  if (graph.process().size == 1) return move_averages(graph, towers, options);
  if (samples.empty()) return move_averages_by_rows(graph, towers, options);
  move_averages(graph, of_all_processes(towers), options);
}

}  // namespace belfry
