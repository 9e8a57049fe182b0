#include "belfry/trainers/core/step_builder.h"

#include <algorithm>
#include <iterator>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/loss_scale.h"
#include "belfry/trainers/core/accumulation.h"
#include "belfry/trainers/core/loss_gradients.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/other_updates.h"
#include "belfry/trainers/core/partitioned_update.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/optimizers/clipping.h"

namespace belfry {
namespace {

// ReduceOptions::weights where towers have different numbers of samples.
std::vector<Output> sample_weights(const TrainedLoss& built, const BatchForm& batch, DType dtype) {
  Graph& graph = *built.towers[0].graph;
  const NameScope names(graph, "samples");
  std::vector<Output> weights;
  for (std::size_t t = 0; t < built.towers.size(); ++t) {
    const DeviceScope on(graph, built.towers[t].device);
    weights.push_back(
        constant(graph, static_cast<double>(batch.samples[t]), dtype, At(cat("tower", t))));
  }
  return weights;
}

// ReduceOptions::total_weight. None where there is one process: the weights of its towers are all.
Output total_sample_weight(const TrainedLoss& built, const BatchForm& all, DType dtype) {
  Graph& graph = *built.towers[0].graph;
  if (graph.process().size == 1) return {};
  const NameScope names(graph, "samples");
  const DeviceScope on(graph, built.towers[0].device);
  return constant(graph, static_cast<double>(all.total()), dtype, "all");
}

// Half precision has too small a range for a check of its own.
Output checked(Output value) { return is_half(value.dtype()) ? cast(value, DType::kF32) : value; }

// The options of a training of this loss alone, as kinds of trainers see them.
TrainerOptions options_for(const TrainedLoss& built, TrainerOptions options) {
  options.optimizer = built.optimizer;
  options.losses.clear();
  return options;
}

class StepBuilder {
 public:
  StepBuilder(Graph& graph, TrainedLoss& built, const TrainingGraphOptions& options,
              const std::map<std::size_t, GradientRows>& separate, double initial, bool first)
      : graph_(graph),
        built_(built),
        options_(options),
        trainer_(options_for(built, options.trainer)),
        separate_(separate),
        initial_(initial),
        first_(first) {
    if (first) updates_ = graph.nodes(kUpdateOps);
  }

  void add(const BatchForm& all) {
    const ProcessPlace place = graph_.process();
    const std::size_t towers = built_.towers.size();
    StepNodes step{.batch = all.of_towers(static_cast<std::size_t>(place.rank) * towers, towers),
                   .all = all};
    const GradientRows& separate = separate_.at(all.bucket);
    const bool joint = separate.empty(), equal = all.equal();
    StepNodes& plain = plain_[all.bucket];  // the step in which all towers count alike
    if (place.size > 1)                     // so that the plans of all processes are alike
      require<InternalError>(std::ranges::count(all.rows, 0) == 0,
                             "a tower of several processes is fed no rows");
    if (joint && place.size > 1) require_samples_of_all(all);
    if (joint) step.zeros = zeros_of_joint_loss(built_.towers_of(all), step.batch);
    if (equal && plain.train_op) {
      step.train_op = plain.train_op;
      step.gradients = plain.gradients;
      step.unscaling = plain.unscaling;
      step.range = plain.range;
      step.squares = plain.squares;
      step.tower_gradients = plain.tower_gradients;
    } else {
      const GradientTable table(
          joint ? gradients_of_joint_loss(built_, step, initial_, trainer_.recompute)
                : gradients_of_separate_losses(built_, separate, step.batch));
      step.tower_gradients = table.rows();
      add_update(table, !equal && !joint, step);
      if (equal) plain = step;
    }
    built_.steps.push_back(std::move(step));
  }

 private:
  // Makes what the step runs.
  void add_update(const GradientTable& table, bool weighted, StepNodes& step) {
    step.range = range_of(step, table.towers(), weighted);
    UpdateOptions how{
        .reduce = {.reduction = initial_ == 1 ? Reduction::kMean : Reduction::kSum},
        .slots = built_.steps.empty() ? OptimizerSlots::kMake : OptimizerSlots::kReuse,
        .unscaling = unscaling(table, step, weighted)};
    if (weighted) {
      const DType dtype = table.at(0, 0).value.dtype();
      how.reduce.weights = sample_weights(built_, step.batch, dtype);
      how.reduce.total_weight = total_sample_weight(built_, step.all, dtype);
    }
    if (table.towers() == 1 && graph_.process().size == 1) step.gradients = table.row(0);
    const UpdateNodes made = update_variables(table, how, step);
    step.accumulation = made.accumulation;
    step.batch_applied = how.unscaling.applied;
    step.unscaling = made.unscaling.factor ? made.unscaling : how.unscaling;
    step.squares = made.squares;
    std::vector<Node*> others = other_updates(graph_, built_, updates_, step, how.unscaling);
    if (const LossScale& state = built_.loss_scale)
      others.push_back(
          &update_loss_scale(state.scale, state.good_steps, how.unscaling.applied,
                             {.growth_steps = trainer_.loss_scale.growth_steps * runs_per_step()}));
    for (Node** const node : {&step.accumulation.begin, &step.accumulation.add})
      if (*node) *node = &train_step(graph_, **node, others);
    step.train_op = &train_step(graph_, *made.update, others);
  }

  // Several losses have a run each, and share the loss scale.
  std::int64_t runs_per_step() const {
    return std::max<std::int64_t>(std::ssize(options_.trainer.losses), 1);
  }

  std::vector<Output> checked_gradients(const GradientTable& table, const StepNodes& step,
                                        bool weighted) const {
    std::vector<Output> values;
    for (std::size_t t = 0; t < table.rows().size(); ++t)
      if (!weighted || step.batch.samples[t] > 0)
        for (const Gradient& gradient : table.rows()[t])
          if (gradient.value) values.push_back(gradient.value);
    return values;
  }

  std::vector<Output> checked_losses(const StepNodes& step) const {
    std::vector<Output> values;
    if (options_.trainer.on_nonfinite == OnNonfinite::kContinue) return values;
    for (std::size_t t = 0; t < built_.towers.size(); ++t) {
      if (step.batch.samples[t] == 0) continue;
      const TowerRecord& tower = built_.towers_of(step.batch)[t];
      values.push_back(checked(tower.loss));
      for (const BatchMoments& layer : tower.moments)
        values.insert(values.end(), {layer.mean, layer.variance});
    }
    return values;
  }

  // Sums of gradients are of as many as there are towers or, with weights, samples, in each batch.
  GradientRange range_of(const StepNodes& step, int towers, bool weighted) const {
    const TrainerOptions& trainer = options_.trainer;
    const std::int64_t all =
        weighted ? step.all.total() : std::int64_t{towers} * graph_.process().size;
    return {.sum = static_cast<double>(trainer.batches.gradient_accumulation_steps * all),
            .squares = trainer.clip_norm == 0 && trainer.clip_value == 0};
  }

  Unscaling unscaling(const GradientTable& table, const StepNodes& step, bool weighted) const {
    const TrainerOptions& trainer = options_.trainer;
    if (!built_.loss_scale && !guards_steps(trainer)) return {};
    const DeviceScope on(graph_, trainer.devices[0]);
    const NameScope names(graph_, built_.loss_scale ? "loss_scale" : "check");
    const Output scale = built_.loss_scale ? Output(built_.loss_scale.scale)
                                           : constant(graph_, 1, DType::kF32, "one");
    return unscaling_of(scale, {.gradients = checked_gradients(table, step, weighted),
                                .losses = checked_losses(step),
                                .range = step.range});
  }

  UpdateNodes update_variables(const GradientTable& table, const UpdateOptions& how,
                               StepNodes& step) {
    const TrainerKind& kind = options_.kind;
    if (updates_parts(trainer_)) return update_parts(trainer_, table, how);
    if (!kind.combines()) return kind.update(trainer_, table, how);
    if (options_.choose && first_ && built_.steps.empty()) {
      options_.choose(table);
      trainer_.aggregation = options_.trainer.aggregation;
    }
    return apply(kind.combine(trainer_, table, how.reduce), how, step);
  }

  UpdateNodes apply(GradientTable gradients, UpdateOptions how, StepNodes& step) {
    UpdateNodes made;
    if (const int batches = trainer_.batches.gradient_accumulation_steps; batches > 1) {
      BatchSums sums = sum_over_batches(gradients, batches, how.unscaling.applied);
      made.accumulation = sums.nodes;
      gradients = GradientTable(std::move(sums.of_all));
      how.unscaling = sums.unscaling;
    }
    step.gradients = gradients.row(0);
    made.unscaling = how.unscaling;
    if (trainer_.log_gradient_norms) made.squares = squares_of(gradients);
    if (trainer_.clip_value > 0) gradients = clip_each(gradients, how);
    if (trainer_.clip_norm > 0) {
      const bool known = trainer_.log_gradient_norms && trainer_.clip_value == 0;
      const GradientSquares squares = known ? made.squares : squares_of(gradients);
      how.unscaling = clipped(squares.sums, trainer_.clip_norm, how.unscaling, gradients.device(0));
    }
    made.update = &apply_gradients(trainer_.optimizer, gradients, {}, how.slots, how.unscaling);
    return made;
  }

  // The table with its elements cut off, which may share tensors as combined ones do.
  GradientTable clip_each(const GradientTable& gradients, UpdateOptions& how) const {
    GradientRows rows = gradients.rows();
    how.unscaling = clip_values(rows, trainer_.clip_value, how.unscaling, gradients.device(0));
    OutputRows values;
    for (const std::vector<Gradient>& row : rows) {
      std::vector<Output>& of_row = values.emplace_back();
      for (const Gradient& gradient : row) of_row.push_back(gradient.value);
    }
    return gradients.with(values);
  }

  Graph& graph_;
  TrainedLoss& built_;
  const TrainingGraphOptions& options_;
  TrainerOptions trainer_;
  const std::map<std::size_t, GradientRows>& separate_;  // by bucket
  const double initial_;
  const bool first_;            // the first loss, or the only one
  std::vector<Node*> updates_;  // of the first run of a step, besides those of trained variables
  std::map<std::size_t, StepNodes> plain_;  // by bucket
};

}  // namespace

Node& train_step(Graph& graph, Node& update, const std::vector<Node*>& others) {
  std::vector<Node*> updates{&update};
  updates.insert(updates.end(), others.begin(), others.end());
  return updates.size() == 1 ? update : group(graph, updates, "train_step");
}

void add_steps(Graph& graph, TrainedLoss& built, const TrainingGraphOptions& options,
               const std::map<std::size_t, GradientRows>& separate, double initial, bool first) {
  if (separate.begin()->second.empty())
    built.canonical = joint_loss_is_canonical(built.towers, options.forms);
  StepBuilder steps(graph, built, options, separate, initial, first);
  for (const BatchForm& form : options.forms) steps.add(form);
}

}  // namespace belfry
