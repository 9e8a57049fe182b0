#include "belfry/trainers/core/training_graph.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/step_builder.h"
#include "belfry/trainers/core/trained_losses.h"
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

// The rows that a tower is fed in every form of a bucket, or kUnknownSize.
std::int64_t rows_of_all(std::span<const BatchForm> forms, std::size_t bucket, int tower) {
  const auto t = static_cast<std::size_t>(tower);
  std::set<std::int64_t> rows;
  for (const BatchForm& form : forms)
    if (form.bucket == bucket) rows.insert(form.rows[t]);
  return rows.size() == 1 && *rows.begin() > 0 ? *rows.begin() : kUnknownSize;
}

// The shapes of samples in a batch of training, or of an evaluation.
std::vector<Dataset::Field> fields_of(const TrainingGraphOptions& options,
                                      std::optional<std::size_t> bucket) {
  std::vector<Dataset::Field> fields(options.fields.begin(), options.fields.end());
  return options.buckets && bucket ? fields_in_bucket(std::move(fields), *options.buckets, *bucket)
                                   : fields;
}

// The towers for batches of one bucket.
struct TowersOfBucket {
  std::vector<TowerRecord> towers;
  std::vector<GradientRows> gradients;  // of each loss
};
using TowersByBucket = std::map<std::size_t, TowersOfBucket>;

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

// For towers that run free.
void add_tower_ops(Graph& graph, TrainingGraph& built, const TrainingGraphOptions& options,
                   GradientRows gradients) {
  require_option<TrainerMistake>(
      !gradients.empty(), "async",
      "=free cannot train layers that are synchronised over towers: they need towers that "
      "make steps together, and these run free; leave out BatchNormLayer::synchronised and "
      "weighted means, or use another trainer, such as replicated (",
      the_option("trainer"), ")");
  require(options.forms.size() == 1 && options.forms[0].equal(),
          "towers that run free take batches of one size");
  const std::vector<Node*> updates =
      options.kind.update_free(options.trainer, GradientTable(std::move(gradients)));
  for (std::size_t t = 0; t < updates.size(); ++t)
    built.tower_ops.push_back(&train_step(graph, *updates[t], built.towers[t].updates));
}

// Adds the steps of losses[which] to the graph.
void add_loss(Graph& graph, TrainingGraph& built, const TrainingGraphOptions& options,
              std::span<const LossOptions> losses, std::size_t which, TowersByBucket& all) {
  const std::size_t rates = graph.nodes(kLearningRates).size();
  TrainedLoss loss{.name = losses[which].loss,
                   .optimizer = losses[which].optimizer,
                   .towers = {},
                   .loss_scale = built.loss_scale};
  const bool trains = !options.trainer.evaluates_only;
  const std::size_t first = options.forms[0].bucket;
  std::map<std::size_t, GradientRows> gradients;
  for (auto& [bucket, made] : all) {
    std::vector<TowerRecord>& towers = bucket == first ? loss.towers : loss.of_buckets[bucket];
    for (const TowerRecord& tower : made.towers)
      towers.push_back(tower_of_loss(tower, losses, which));
    gradients.emplace(bucket, std::move(made.gradients[which]));
  }
  if (trains && options.kind.runs_free(options.trainer)) {
    add_tower_ops(graph, built, options, std::move(gradients.at(first)));
  } else if (trains) {
    add_steps(graph, loss, options, gradients, initial_gradient_of(graph, options), which == 0);
    if (graph.process().size > 1) add_values_of_all(graph, loss);
  }
  const std::vector<Node*> fed = graph.nodes(kLearningRates);
  for (Node* const rate : std::span(fed).subspan(rates))
    loss.learning_rates.push_back(rate->output());
  built.losses.push_back(std::move(loss));
}

// Builds the model for the first bucket, or once more for another one.
std::vector<TowerRecord> build_towers(Graph& graph, const TrainingGraphOptions& options,
                                      const std::function<void(Tower&)>& build, bool is_first) {
  const TrainerOptions& trainer = options.trainer;
  const VariablePolicy policy = variables_of(trainer, options.kind);
  std::span<const DeviceSpec> devices = trainer.devices;
  if (trainer.evaluates_only) devices = devices.first(1);  // one tower, which makes the variables
  if (is_first)
    return replicate(graph, devices, policy, build,
                     options.kind.runs_free(trainer) ? MovingAverages::kOfEachTower
                                                     : MovingAverages::kOfAllTowers);
  std::vector<TowerRecord> towers = replicate_again(graph, devices, policy, build);
  require(graph.nodes(kUpdateOps).empty(),
          "the model updates variables by itself, as batch norm does, and batches have samples "
          "of several lengths; leave out the buckets, or use another norm, such as layer_norm");
  return towers;
}

// Groups say how weights are trained, so an evaluation alone has none.
std::vector<LossOptions> stated_losses(const TrainerOptions& trainer) {
  std::vector<LossOptions> losses = losses_of(trainer);
  for (LossOptions& loss : losses)
    if (trainer.evaluates_only) loss.optimizer = loss.optimizer.with_groups({});
  return losses;
}

}  // namespace

TrainingGraph build_training_graph(Graph& graph, const TrainingGraphOptions& options) {
  require_field_names(options.fields);
  require(!options.forms.empty(), "a training graph needs a form of batches");
  TrainingGraph result;
  const TrainerOptions& trainer = options.trainer;
  const std::vector<LossOptions> losses = stated_losses(trainer);
  TowersByBucket all;
  std::optional<std::size_t> bucket;  // none in an evaluation
  const double initial = initial_gradient_of(graph, options);
  if (!trainer.evaluates_only) result.loss_scale = make_loss_scale(graph, trainer);
  LossFreezing frozen(losses);
  const auto build = [&](Tower& tower) {
    const std::int64_t batch =
        bucket ? rows_of_all(options.forms, *bucket, tower.options().index) : kUnknownSize;
    const std::vector<Output> inputs =
        placeholders(tower.graph(), fields_of(options, bucket), batch);
    {
      const AutocastScope types(graph, autocasting(trainer.precision));
      const VariableScope freezing(graph, frozen);
      std::optional<AveragesScope> averages;
      if (!tower.is_training()) averages.emplace(graph, result.towers[0].variables);
      naming_part("the tower function", [&] { trainer.model.build(tower, inputs); });
    }
    if (!tower.is_training()) return;
    require_losses(tower, losses, frozen.frozen());
    if (trainer.evaluates_only || graph.open()) return;
    for (std::size_t l = 0; l < losses.size(); ++l) {
      const Output loss = value_of_loss(losses[l], tower.metrics(), tower.loss());
      all[*bucket].gradients[l].push_back(
          compute_gradients(loss, variables_of_loss(losses[l], tower.trainables()),
                            {.colocate = true,
                             .initial = initial_gradients(result.loss_scale, loss, initial),
                             .recompute = trainer.recompute}));
    }
  };
  for (const BatchForm& form : options.forms) {
    const auto [made, is_new] = all.try_emplace(form.bucket);
    if (!is_new) continue;
    bucket = form.bucket;
    TowersOfBucket& of_bucket = made->second;
    of_bucket.gradients.resize(losses.size());
    of_bucket.towers = build_towers(graph, options, build, all.size() == 1);
    for (TowerRecord& tower : of_bucket.towers) sort_metrics(tower, losses);
  }
  bucket = {};
  result.towers = all.at(options.forms[0].bucket).towers;
  require_recompute_scopes(result.towers[0], trainer.recompute);
  for (std::size_t l = 0; l < losses.size(); ++l) add_loss(graph, result, options, losses, l, all);
  warn_of_useless_scopes(graph, trainer.recompute);
  result.frozen = frozen.frozen();
  const auto own = static_cast<int>(trainer.devices.size());
  for (std::size_t p = 0; p < options.predictors; ++p)
    result.predictors.push_back(predict_tower(
        graph,
        {.device = trainer.devices[p], .index = graph.process().rank * own + static_cast<int>(p)},
        build));
  return result;
}

}  // namespace belfry
