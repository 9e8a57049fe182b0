#include "belfry/trainers/core/loss_gradients.h"

#include <algorithm>
#include <iterator>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/training_graph_checks.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

bool every_tower_has_samples(const BatchForm& form) {
  return std::ranges::count(form.samples, 0) == 0;
}

// Then one row of joint gradients is for all towers.
bool several_share_variables(std::span<const TowerRecord> towers) {
  return towers.size() > 1 && towers[1].trainables == towers[0].trainables;
}

// Zeros on the tower's device, like these gradients.
std::vector<Gradient> zero_gradients(const TowerRecord& tower, const std::vector<Gradient>& like) {
  const DeviceScope on(*tower.graph, tower.device);
  std::vector<Gradient> row;
  for (const Gradient& g : like)
    row.push_back(
        {fill(*tower.graph, g.variable.shape(), 0, g.value.dtype(), "zeros"), g.variable});
  return row;
}

// Not through towers without samples.
std::vector<Gradient> joint_gradients(const TrainedLoss& built, const StepNodes& step,
                                      double initial, const std::vector<std::string>& recompute) {
  Graph& graph = *built.towers[0].graph;
  const BatchForm &batch = step.batch, &all = step.all;
  const std::vector<TowerRecord>& towers = built.towers_of(batch);
  const NameScope names(graph, "all_towers");
  const DeviceScope on(graph, towers[0].device);
  const auto count = static_cast<double>(all.samples.size());
  const bool several = graph.process().size > 1, shared = several_share_variables(towers);
  std::vector<Output> shares;
  std::vector<Variable> variables;
  for (std::size_t t = 0; t < towers.size(); ++t) {
    const double share =
        count * static_cast<double>(batch.samples[t]) / static_cast<double>(all.total());
    if (share == 0) continue;
    const TowerRecord& tower = towers[t];
    // Processes have plans alike, whatever their shares are.
    const bool plain = several ? all.equal() : share == 1;
    shares.push_back(plain ? tower.loss : tower.loss * share);
    if (!shared || variables.empty())
      variables.insert(variables.end(), tower.trainables.begin(), tower.trainables.end());
  }
  const Output loss = add_n(shares, "loss");
  return compute_gradients(loss, variables,
                           {.colocate = true,
                            .initial = initial_gradients(built.loss_scale, loss, initial),
                            .stop = step.zeros,
                            .recompute = recompute});
}

}  // namespace

GradientRows gradients_of_separate_losses(const TrainedLoss& built, GradientRows computed,
                                          const BatchForm& batch) {
  const NameScope names(*built.towers[0].graph, "no_samples");
  for (std::size_t t = 0; t < computed.size(); ++t)
    if (batch.rows[t] == 0) computed[t] = zero_gradients(built.towers[t], computed[t]);
  return computed;
}

bool joint_loss_is_canonical(std::span<const TowerRecord> towers,
                             std::span<const BatchForm> forms) {
  return !several_share_variables(towers) ||
         (!uses_a_variable_twice(*towers[0].graph, towers[0].trainables) &&
          std::ranges::all_of(forms, every_tower_has_samples));
}

std::vector<Output> zeros_of_joint_loss(std::span<const TowerRecord> towers,
                                        const BatchForm& batch) {
  std::vector<Output> zeros;
  for (std::size_t t = 0; t < towers.size(); ++t)
    if (batch.samples[t] == 0)
      std::ranges::copy_if(towers[t].contributions, std::back_inserter(zeros),
                           [](const Output& given) { return &given.node().op() != &kPlaceholder; });
  return zeros;
}

void require_samples_of_all(const BatchForm& all) {
  require_option(every_tower_has_samples(all), "uneven", ": the last batch of an epoch has ",
                 all.total(), " samples (", join(all.samples, " + "),
                 "), and layers that are synchronised over the towers of several processes "
                 "need some in each; use uneven=drop, or another global_batch_size");
}

GradientRows gradients_of_joint_loss(const TrainedLoss& built, const StepNodes& step,
                                     double initial, const std::vector<std::string>& recompute) {
  const BatchForm& batch = step.batch;
  const std::vector<TowerRecord>& of_batch = built.towers_of(batch);
  const std::size_t towers = of_batch.size();
  const bool shared = several_share_variables(of_batch);
  std::vector<Gradient> all = joint_gradients(built, step, initial, recompute);
  if (shared && initial == 1) {
    for (Gradient& g : all) {
      const DeviceScope on(g.value.graph(), g.value.device());
      g.value = g.value / static_cast<double>(towers);
    }
  }
  std::size_t counts = 0;  // a tower that does
  while (batch.samples[counts] == 0) ++counts;
  GradientRows gradients;
  for (std::size_t t = 0; t < (shared ? 1 : towers); ++t) {
    const bool own = shared || batch.samples[t] > 0;
    const TowerRecord& tower = of_batch[t];
    const std::vector<Variable>& with_gradient =
        own ? tower.trainables : of_batch[counts].trainables;
    std::vector<Gradient> row;
    for (std::size_t v = 0; v < tower.trainables.size(); ++v) {
      const auto found = std::ranges::find(all, with_gradient[v], &Gradient::variable);
      if (found != all.end()) row.push_back({found->value, tower.trainables[v]});
    }
    gradients.push_back(own ? row : zero_gradients(tower, row));
  }
  return gradients;
}

}  // namespace belfry
