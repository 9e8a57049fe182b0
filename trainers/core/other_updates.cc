#include "belfry/trainers/core/other_updates.h"

#include <set>

#include "belfry/framework/base/text.h"

namespace belfry {

std::vector<Node*> other_updates(Graph& graph, const TrainedLoss& built,
                                 const std::vector<Node*>& all, const StepNodes& step,
                                 const Unscaling& unscaling) {
  const bool equal = step.all.equal();
  if (all.empty() || (equal && !unscaling.factor)) return all;
  std::vector<std::vector<BatchMoments>> moments;
  std::set<const Node*> averages;
  for (const TowerRecord& tower : built.towers) {
    moments.push_back(tower.moments);
    for (const BatchMoments& layer : tower.moments)
      averages.insert({&layer.mean_average.node(), &layer.variance_average.node()});
  }
  std::vector<Node*> result = all;
  std::erase_if(result, [&](const Node* node) {
    if (node->op().writes > 0 && averages.contains(&node->input(0).node())) return true;
    for (std::size_t t = 0; t < built.towers.size(); ++t)
      if (!step.runs(t) && node->origin().prefix == built.towers[t].name + "/") return true;
    return false;
  });
  const std::string own = cat(kUpdateOps, "/form", built.steps.size());
  const std::span<const std::int64_t> samples(step.all.samples);
  update_moving_averages(graph, moments,
                         {.collection = own,
                          .samples = equal ? std::span<const std::int64_t>() : samples,
                          .applied = unscaling.factor});
  const std::vector<Node*> moves = graph.nodes(own);
  result.insert(result.end(), moves.begin(), moves.end());
  return result;
}

}  // namespace belfry
