#include "belfry/trainers/core/training_graph.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/step_builder.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_graph_checks.h"
#include "belfry/trainers/core/values_of_all.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

std::vector<Output> placeholders(Graph& graph, std::span<const Dataset::Field> fields,
                                 std::int64_t batch) {
  std::vector<Output> result;
  for (const Dataset::Field& field : fields) {
    std::vector<std::int64_t> dims = field.shape.dims();
    dims.insert(dims.begin(), batch);
    result.push_back(placeholder(graph, field.name, field.dtype, Shape(dims)));
  }
  return result;
}

// The rows that a tower is fed in every form, or kUnknownSize.
std::int64_t rows_of_all(std::span<const BatchForm> forms, int tower) {
  const auto t = static_cast<std::size_t>(tower);
  const std::int64_t rows = forms[0].rows[t];
  const bool same =
      std::ranges::all_of(forms, [&](const BatchForm& form) { return form.rows[t] == rows; });
  return same && rows > 0 ? rows : kUnknownSize;
}

// The gradient of each tower's loss at which differentiation starts, with no loss scale: 1 / K
// where that makes the sum over towers their mean. A power of two changes no digit of a gradient,
// and spares a division of its sum.
double initial_gradient_of(const Graph& graph, const TrainingGraphOptions& options) {
  const std::size_t towers =
      options.trainer.devices.size() * static_cast<std::size_t>(graph.process().size);
  const bool alike = std::ranges::all_of(options.forms, &BatchForm::equal);
  const bool divides = options.kind.combines() && std::has_single_bit(towers) && alike &&
                       options.trainer.precision != Precision::kF16;
  return divides ? 1.0 / static_cast<double>(towers) : 1;
}

VariablePolicy variables_of(const TrainerOptions& options, const TrainerKind& kind) {
  const bool on_host = options.parameters_on_cpu && kind.spreads_variables();
  return on_host ? VariablePolicy::kOnHost : kind.variables;
}

// The tower function has been called.
void require_groups(const Tower& tower, std::span<const VariableGroup> groups,
                    const FreezingGetter& freezing) {
  const std::string why = refusal_of_groups(groups, tower.variables(), freezing.frozen());
  require_option<OptionMistake>(why.empty(), "group", "=", why);
}

// For towers that run free.
void add_tower_ops(Graph& graph, TrainingGraph& built, const TrainingGraphOptions& options,
                   GradientRows gradients) {
  require_option<TrainerMistake>(
      !gradients.empty(), "async",
      "=free cannot train layers that are synchronised over towers: they need towers that "
      "make steps together, and these run free; leave BatchNormLayer::synchronised out, or use "
      "another trainer, such as replicated (",
      the_option("trainer"), ")");
  require(options.forms.size() == 1 && options.forms[0].equal(),
          "towers that run free take batches of one size");
  const std::vector<Node*> updates =
      options.kind.update_free(options.trainer, GradientTable(std::move(gradients)));
  for (std::size_t t = 0; t < updates.size(); ++t)
    built.tower_ops.push_back(&train_step(graph, *updates[t], built.towers[t].updates));
}

}  // namespace

TrainingGraph build_training_graph(Graph& graph, const TrainingGraphOptions& options) {
  require_field_names(options.fields);
  require(!options.forms.empty(), "a training graph needs a form of batches");
  TrainingGraph result;
  GradientRows gradients;
  const TrainerOptions& trainer = options.trainer;
  const bool free = options.kind.runs_free(trainer);
  const double initial = initial_gradient_of(graph, options);
  result.loss_scale = make_loss_scale(graph, trainer);
  const std::vector<VariableGroup>& groups = trainer.optimizer.groups();
  FreezingGetter frozen(groups);
  const auto build = [&](Tower& tower) {
    const std::int64_t batch =
        tower.is_training() ? rows_of_all(options.forms, tower.options().index) : kUnknownSize;
    const std::vector<Output> inputs = placeholders(tower.graph(), options.fields, batch);
    {
      const AutocastScope types(graph, autocasting(trainer.precision));
      const VariableScope freezing(graph, frozen);
      std::optional<AveragesScope> averages;
      if (!tower.is_training()) averages.emplace(graph, result.towers[0].variables);
      naming_part("the tower function", [&] { tower.loss(trainer.model(tower, inputs)); });
    }
    if (tower.is_training()) require_groups(tower, groups, frozen);
    if (tower.is_training() && !graph.open())
      gradients.push_back(
          compute_gradients(tower.loss(), tower.trainables(),
                            {.colocate = true,
                             .initial = initial_gradients(result.loss_scale, tower.loss(), initial),
                             .recompute = trainer.recompute}));
  };
  result.towers = replicate(graph, trainer.devices, variables_of(trainer, options.kind), build,
                            free ? MovingAverages::kOfEachTower : MovingAverages::kOfAllTowers);
  require_recompute_scopes(result.towers[0], trainer.recompute);
  if (free) {
    add_tower_ops(graph, result, options, std::move(gradients));
  } else {
    add_steps(graph, result, options, gradients, initial);
    if (graph.process().size > 1) add_values_of_all(graph, result);
  }
  warn_of_useless_scopes(graph, trainer.recompute);
  for (Node* rate : graph.nodes(kLearningRates)) result.learning_rates.push_back(rate->output());
  result.frozen = frozen.frozen();
  for (const TowerRecord& tower : std::span(result.towers).first(options.predictors))
    result.predictors.push_back(
        predict_tower(graph, {.device = tower.device, .index = tower.index}, build));
  return result;
}

}  // namespace belfry
