#include "belfry/trainers/core/training_graph.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>

#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/loss_scale.h"
#include "belfry/ops/operand.h"
#include "belfry/trainers/core/accumulation.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/other_updates.h"
#include "belfry/trainers/core/partitioned_update.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_graph_checks.h"
#include "belfry/trainers/core/values_of_all.h"
#include "belfry/trainers/optimizers/clipping.h"
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

Node& train_step(Graph& graph, Node& update, const std::vector<Node*>& others) {
  std::vector<Node*> updates{&update};
  updates.insert(updates.end(), others.begin(), others.end());
  return updates.size() == 1 ? update : group(graph, updates, "train_step");
}

bool every_tower_has_samples(const BatchForm& form) {
  return std::ranges::count(form.samples, 0) == 0;
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

// Builds the steps of one graph whose towers exist.
class StepBuilder {
 public:
  StepBuilder(Graph& graph, TrainingGraph& built, const TrainingGraphOptions& options,
              GradientRows gradients)
      : graph_(graph),
        built_(built),
        options_(options),
        trainer_(options.trainer),
        initial_gradient_(initial_gradient_of(graph, options)),
        sums_are_means_(initial_gradient_ != 1),
        separate_(std::move(gradients)),
        updates_(graph.nodes(kUpdateOps)) {
    // The gradients of all uses are then one sum, which adds tower by tower if each has one use.
    if (separate_.empty() && several_share_variables())
      built.canonical = !uses_a_variable_twice(graph, built.towers[0].trainables) &&
                        std::ranges::all_of(options.forms, every_tower_has_samples);
  }

  void add(const BatchForm& all) {
    StepNodes step{.batch = all.of_towers(first_tower(), towers()), .all = all};
    const BatchForm& batch = step.batch;
    const bool joint = separate_.empty(), equal = all.equal();
    if (graph_.process().size > 1) require_rows(all, joint);
    if (joint) {
      for (std::size_t t = 0; t < built_.towers.size(); ++t)
        if (batch.samples[t] == 0)
          std::ranges::copy_if(
              built_.towers[t].contributions, std::back_inserter(step.zeros),
              [](const Output& given) { return &given.node().op() != &kPlaceholder; });
    }
    if (equal && plain_) {
      step.train_op = plain_;
      step.gradients = plain_gradients_;
    } else {
      const GradientTable table(joint ? of_joint_loss(step) : of_separate_losses(batch));
      update(table, !equal && !joint, step);
      if (equal) plain_ = step.train_op;
      if (equal) plain_gradients_ = step.gradients;
    }
    built_.steps.push_back(std::move(step));
  }

 private:
  std::size_t towers() const { return built_.towers.size(); }
  std::size_t first_tower() const {
    return static_cast<std::size_t>(graph_.process().rank) * towers();
  }
  // So that the plans of all processes are alike, and gradients of layers over all towers have as
  // many terms as there are towers.
  static void require_rows(const BatchForm& all, bool joint) {
    require<InternalError>(std::ranges::count(all.rows, 0) == 0,
                           "a tower of several processes is fed no rows");
    require_option(!joint || every_tower_has_samples(all), "uneven",
                   ": the last batch of an epoch has ", all.total(), " samples (",
                   join(all.samples, " + "),
                   "), and layers that are synchronised over the towers of several processes "
                   "need some in each; use uneven=drop, or another global_batch_size");
  }
  // Then one row of joint gradients is for all towers.
  bool several_share_variables() const {
    return towers() > 1 && built_.towers[1].trainables == built_.towers[0].trainables;
  }

  std::vector<Gradient> zero_gradients(std::size_t t, const std::vector<Gradient>& like) {
    DeviceScope on(graph_, built_.towers[t].device);
    std::vector<Gradient> row;
    for (const Gradient& g : like)
      row.push_back({fill(graph_, g.variable.shape(), 0, g.value.dtype(), "zeros"), g.variable});
    return row;
  }

  // Gradients of each tower's own loss; zeros for towers that are not to run.
  GradientRows of_separate_losses(const BatchForm& batch) {
    NameScope names(graph_, "no_samples");
    GradientRows gradients = separate_;
    for (std::size_t t = 0; t < towers(); ++t)
      if (batch.rows[t] == 0) gradients[t] = zero_gradients(t, separate_[t]);
    return gradients;
  }

  // Gradients of K times the mean of all towers' losses, with respect to each tower's variables. So
  // the mean over towers is what is wanted. Where towers share variables, one row, of that mean:
  // the same sums, divided last.
  GradientRows of_joint_loss(const StepNodes& step) {
    const BatchForm& batch = step.batch;
    const std::vector<Variable>& main = built_.towers[0].trainables;
    const bool shared = several_share_variables();
    std::vector<Gradient> all = joint_gradients(step, shared);
    if (shared && !sums_are_means_) {
      for (Gradient& g : all) {
        DeviceScope on(graph_, g.value.device());
        g.value = g.value / static_cast<double>(towers());
      }
    }
    std::size_t counts = 0;  // a tower that does
    while (batch.samples[counts] == 0) ++counts;
    GradientRows gradients;
    for (std::size_t t = 0; t < (shared ? 1 : towers()); ++t) {
      const bool own = shared || batch.samples[t] > 0;
      const std::vector<Variable>& with_gradient = built_.towers[own ? t : counts].trainables;
      std::vector<Gradient> row;
      for (std::size_t v = 0; v < main.size(); ++v) {
        const auto found = std::ranges::find(all, with_gradient[v], &Gradient::variable);
        if (found != all.end()) row.push_back({found->value, built_.towers[t].trainables[v]});
      }
      gradients.push_back(own ? row : zero_gradients(t, row));
    }
    return gradients;
  }

  // Not through towers without samples.
  std::vector<Gradient> joint_gradients(const StepNodes& step, bool shared) {
    const BatchForm &batch = step.batch, &all = step.all;
    NameScope names(graph_, "all_towers");
    DeviceScope on(graph_, built_.towers[0].device);
    const auto count = static_cast<double>(all.samples.size());
    const bool several = graph_.process().size > 1;
    std::vector<Output> shares;
    std::vector<Variable> variables;
    for (std::size_t t = 0; t < towers(); ++t) {
      const double share =
          count * static_cast<double>(batch.samples[t]) / static_cast<double>(all.total());
      if (share == 0) continue;
      const TowerRecord& tower = built_.towers[t];
      // Processes have plans alike, whatever their shares are.
      const bool plain = several ? all.equal() : share == 1;
      shares.push_back(plain ? tower.loss : tower.loss * share);
      if (!shared || variables.empty())
        variables.insert(variables.end(), tower.trainables.begin(), tower.trainables.end());
    }
    const Output loss = add_n(shares, "loss");
    return compute_gradients(
        loss, variables,
        {.colocate = true,
         .initial = initial_gradients(built_.loss_scale, loss, initial_gradient_),
         .stop = step.zeros,
         .recompute = trainer_.recompute});
  }

  std::vector<Output> weights(const GradientTable& table, const BatchForm& batch) {
    NameScope names(graph_, "samples");
    std::vector<Output> result;
    for (std::size_t t = 0; t < towers(); ++t) {
      DeviceScope on(graph_, built_.towers[t].device);
      result.push_back(constant(graph_, static_cast<double>(batch.samples[t]),
                                table.at(0, 0).value.dtype(), At(cat("tower", t))));
    }
    return result;
  }

  // None where there is one process: the weights of its towers are all.
  Output total_weight(const GradientTable& table, const BatchForm& all) {
    if (graph_.process().size == 1) return {};
    NameScope names(graph_, "samples");
    DeviceScope on(graph_, built_.towers[0].device);
    return constant(graph_, static_cast<double>(all.total()), table.at(0, 0).value.dtype(), "all");
  }

  // Sums are of as many gradients as there are towers or, with weights, samples.
  Unscaling unscaling(const GradientTable& table, const StepNodes& step, bool weighted) {
    const std::int64_t count = std::int64_t{table.towers()} * graph_.process().size;
    const auto total = static_cast<double>(weighted ? step.all.total() : count);
    return unscaling_of(built_.loss_scale, table.rows(), total,
                        [&](std::size_t t) { return !weighted || step.batch.samples[t] > 0; });
  }

  // Makes what the steps of a form run.
  void update(const GradientTable& table, bool weighted, StepNodes& step) {
    UpdateOptions how{
        .reduce = {.reduction = sums_are_means_ ? Reduction::kSum : Reduction::kMean},
        .slots = built_.steps.empty() ? OptimizerSlots::kMake : OptimizerSlots::kReuse,
        .unscaling = unscaling(table, step, weighted)};
    if (weighted) {
      how.reduce.weights = weights(table, step.batch);
      how.reduce.total_weight = total_weight(table, step.all);
    }
    if (table.towers() == 1 && graph_.process().size == 1) step.gradients = table.row(0);
    const UpdateNodes made = update_variables(table, how, step);
    step.accumulation = made.accumulation;
    std::vector<Node*> others = other_updates(graph_, built_, updates_, step, how.unscaling);
    if (const LossScale& state = built_.loss_scale)
      others.push_back(&update_loss_scale(state.scale, state.good_steps, state.skipped_steps,
                                          how.unscaling.applied,
                                          {.growth_steps = trainer_.loss_scale.growth_steps}));
    for (Node** const node : {&step.accumulation.begin, &step.accumulation.add})
      if (*node) *node = &train_step(graph_, **node, others);
    step.train_op = &train_step(graph_, *made.update, others);
  }

  UpdateNodes update_variables(const GradientTable& table, const UpdateOptions& how,
                               StepNodes& step) {
    const TrainerKind& kind = options_.kind;
    if (updates_parts(trainer_)) return update_parts(trainer_, table, how);
    if (!kind.combines()) return kind.update(trainer_, table, how);
    if (options_.choose && built_.steps.empty()) options_.choose(table);
    return apply(kind.combine(trainer_, table, how.reduce), how, step);
  }

  UpdateNodes apply(GradientTable gradients, const UpdateOptions& how, StepNodes& step) {
    Unscaling unscaling = how.unscaling;
    AccumulationNodes accumulation;
    if (const int batches = trainer_.batches.gradient_accumulation_steps; batches > 1) {
      const DeviceScope on(graph_, gradients.device(0));
      GradientRows distinct = gradients.rows();
      if (gradients.shares_variables()) distinct.resize(1);
      BatchSums sums = sum_over_batches(distinct, batches);
      accumulation = {sums.begin, sums.add};
      gradients = GradientTable(std::move(sums.of_all));
      unscaling = {.factor = sums.share};
    }
    step.gradients = gradients.row(0);
    return {&apply_gradients(trainer_.optimizer, gradients, {}, how.slots,
                             clipped(gradients, trainer_.clip_norm, unscaling)),
            accumulation};
  }

  Graph& graph_;
  TrainingGraph& built_;
  const TrainingGraphOptions& options_;
  const TrainerOptions& trainer_;
  const double initial_gradient_;
  const bool sums_are_means_;    // over towers, of gradients
  const GradientRows separate_;  // of each loss; empty: they are taken of all at once
  const std::vector<Node*> updates_;
  Node* plain_ = nullptr;  // the step in which all towers count alike
  std::vector<Gradient> plain_gradients_;
};

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

std::vector<FeedType> StepNodes::zero_feeds() const {
  std::vector<FeedType> feeds;
  for (const Output& zero : zeros) {
    Shape shape = zero.shape();
    for (std::size_t i = 0; i < shape.rank(); ++i)
      if (shape[i] == kUnknownSize) shape[i] = 0;
    feeds.push_back({zero, shape});
  }
  return feeds;
}

TrainingGraph build_training_graph(Graph& graph, const TrainingGraphOptions& options) {
  require_field_names(options.fields);
  require(!options.forms.empty(), "a training graph needs a form of batches");
  TrainingGraph result;
  GradientRows gradients;
  const TrainerOptions& trainer = options.trainer;
  const bool free = options.kind.runs_free(trainer);
  result.loss_scale = make_loss_scale(graph, trainer);
  const auto build = [&](Tower& tower) {
    const std::int64_t batch =
        tower.is_training() ? rows_of_all(options.forms, tower.options().index) : kUnknownSize;
    const std::vector<Output> inputs = placeholders(tower.graph(), options.fields, batch);
    {
      const AutocastScope types(graph, autocasting(trainer.precision));
      std::optional<AveragesScope> averages;
      if (!tower.is_training()) averages.emplace(graph, result.towers[0].variables);
      tower.loss(trainer.model(tower, inputs));
    }
    if (tower.is_training() && !graph.open())
      gradients.push_back(
          compute_gradients(tower.loss(), tower.trainables(),
                            {.colocate = true,
                             .initial = initial_gradients(result.loss_scale, tower.loss(),
                                                          initial_gradient_of(graph, options)),
                             .recompute = trainer.recompute}));
  };
  result.towers = replicate(graph, trainer.devices, variables_of(trainer, options.kind), build,
                            free ? MovingAverages::kOfEachTower : MovingAverages::kOfAllTowers);
  require_recompute_scopes(result.towers[0], trainer.recompute);
  if (free) {
    add_tower_ops(graph, result, options, std::move(gradients));
  } else {
    StepBuilder steps(graph, result, options, std::move(gradients));
    for (const BatchForm& form : options.forms) steps.add(form);
    if (graph.process().size > 1) add_values_of_all(graph, result);
  }
  warn_of_useless_scopes(graph, trainer.recompute);
  for (Node* rate : graph.nodes(kLearningRates)) result.learning_rates.push_back(rate->output());
  for (const TowerRecord& tower : std::span(result.towers).first(options.predictors))
    result.predictors.push_back(
        predict_tower(graph, {.device = tower.device, .index = tower.index}, build));
  return result;
}

}  // namespace belfry
