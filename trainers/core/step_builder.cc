#include "belfry/trainers/core/step_builder.h"

#include <algorithm>

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
std::vector<Output> sample_weights(const TrainingGraph& built, const BatchForm& batch,
                                   DType dtype) {
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
Output total_sample_weight(const TrainingGraph& built, const BatchForm& all, DType dtype) {
  Graph& graph = *built.towers[0].graph;
  if (graph.process().size == 1) return {};
  const NameScope names(graph, "samples");
  const DeviceScope on(graph, built.towers[0].device);
  return constant(graph, static_cast<double>(all.total()), dtype, "all");
}

// Half precision has too small a range for a check of its own.
Output checked(Output value) { return is_half(value.dtype()) ? cast(value, DType::kF32) : value; }

class StepBuilder {
 public:
  StepBuilder(Graph& graph, TrainingGraph& built, const TrainingGraphOptions& options,
              const GradientRows& separate, double initial)
      : graph_(graph),
        built_(built),
        options_(options),
        separate_(separate),
        initial_(initial),
        updates_(graph.nodes(kUpdateOps)) {}

  void add(const BatchForm& all) {
    const ProcessPlace place = graph_.process();
    const std::size_t towers = built_.towers.size();
    StepNodes step{.batch = all.of_towers(static_cast<std::size_t>(place.rank) * towers, towers),
                   .all = all};
    const bool joint = separate_.empty(), equal = all.equal();
    if (place.size > 1)  // so that the plans of all processes are alike
      require<InternalError>(std::ranges::count(all.rows, 0) == 0,
                             "a tower of several processes is fed no rows");
    if (joint && place.size > 1) require_samples_of_all(all);
    if (joint) step.zeros = zeros_of_joint_loss(built_.towers, step.batch);
    if (equal && plain_.train_op) {
      step.train_op = plain_.train_op;
      step.gradients = plain_.gradients;
      step.tower_gradients = plain_.tower_gradients;
      step.applied = plain_.applied;
    } else {
      const GradientTable table(
          joint ? gradients_of_joint_loss(built_, step, initial_, options_.trainer.recompute)
                : gradients_of_separate_losses(built_, separate_, step.batch));
      step.tower_gradients = table.rows();
      add_update(table, !equal && !joint, step);
      if (equal) plain_ = step;
    }
    built_.steps.push_back(std::move(step));
  }

 private:
  // Makes what the step runs.
  void add_update(const GradientTable& table, bool weighted, StepNodes& step) {
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
    step.applied = made.applied ? made.applied : step.batch_applied;
    std::vector<Node*> others = other_updates(graph_, built_, updates_, step, how.unscaling);
    if (const LossScale& state = built_.loss_scale)
      others.push_back(&update_loss_scale(
          state.scale, state.good_steps, state.skipped_steps, how.unscaling.applied,
          {.growth_steps = options_.trainer.loss_scale.growth_steps}));
    for (Node** const node : {&step.accumulation.begin, &step.accumulation.add})
      if (*node) *node = &train_step(graph_, **node, others);
    step.train_op = &train_step(graph_, *made.update, others);
  }

  // What a step must have finite to update anything.
  std::vector<Output> checked_values(const GradientTable& table, const StepNodes& step,
                                     bool weighted) const {
    std::vector<Output> values;
    for (std::size_t t = 0; t < table.rows().size(); ++t)
      if (!weighted || step.batch.samples[t] > 0)
        for (const Gradient& gradient : table.rows()[t])
          if (gradient.value) values.push_back(gradient.value);
    if (options_.trainer.on_nonfinite == OnNonfinite::kContinue) return values;
    for (std::size_t t = 0; t < built_.towers.size(); ++t) {
      if (!step.runs(t)) continue;
      values.push_back(checked(built_.towers[t].loss));
      for (const BatchMoments& layer : built_.towers[t].moments)
        values.insert(values.end(), {layer.mean, layer.variance});
    }
    return values;
  }

  // Sums of gradients are of as many as there are towers or, with weights, samples, in each batch.
  Unscaling unscaling(const GradientTable& table, const StepNodes& step, bool weighted) const {
    const TrainerOptions& trainer = options_.trainer;
    if (!built_.loss_scale && !guards_steps(trainer)) return {};
    const std::int64_t towers = std::int64_t{table.towers()} * graph_.process().size;
    const auto sum = static_cast<double>(trainer.batches.gradient_accumulation_steps *
                                         (weighted ? step.all.total() : towers));
    const DeviceScope on(graph_, trainer.devices[0]);
    const Output scale = built_.loss_scale ? Output(built_.loss_scale.scale)
                                           : constant(graph_, 1, DType::kF32, "one");
    return unscaling_of(scale, checked_values(table, step, weighted), sum);
  }

  UpdateNodes update_variables(const GradientTable& table, const UpdateOptions& how,
                               StepNodes& step) {
    const TrainerKind& kind = options_.kind;
    const TrainerOptions& trainer = options_.trainer;
    if (updates_parts(trainer)) return update_parts(trainer, table, how);
    if (!kind.combines()) return kind.update(trainer, table, how);
    if (options_.choose && built_.steps.empty()) options_.choose(table);
    return apply(kind.combine(trainer, table, how.reduce), how, step);
  }

  UpdateNodes apply(GradientTable gradients, UpdateOptions how, StepNodes& step) {
    const TrainerOptions& trainer = options_.trainer;
    AccumulationNodes accumulation;
    if (const int batches = trainer.batches.gradient_accumulation_steps; batches > 1) {
      BatchSums sums = sum_over_batches(gradients, batches, how.unscaling.applied);
      accumulation = sums.nodes;
      gradients = GradientTable(std::move(sums.of_all));
      how.unscaling = sums.unscaling;
    }
    step.gradients = gradients.row(0);
    if (trainer.clip_value > 0) gradients = clip_each(gradients, how);
    return {&apply_gradients(trainer.optimizer, gradients, {}, how.slots,
                             clipped(gradients, trainer.clip_norm, how.unscaling)),
            accumulation, how.unscaling.applied};
  }

  // The table with its elements cut off, which may share tensors as combined ones do.
  GradientTable clip_each(const GradientTable& gradients, UpdateOptions& how) const {
    GradientRows rows = gradients.rows();
    how.unscaling =
        clip_values(rows, options_.trainer.clip_value, how.unscaling, gradients.device(0));
    OutputRows values;
    for (const std::vector<Gradient>& row : rows) {
      std::vector<Output>& of_row = values.emplace_back();
      for (const Gradient& gradient : row) of_row.push_back(gradient.value);
    }
    return gradients.with(values);
  }

  Graph& graph_;
  TrainingGraph& built_;
  const TrainingGraphOptions& options_;
  const GradientRows& separate_;
  const double initial_;
  const std::vector<Node*> updates_;
  StepNodes plain_;  // the step in which all towers count alike
};

}  // namespace

Node& train_step(Graph& graph, Node& update, const std::vector<Node*>& others) {
  std::vector<Node*> updates{&update};
  updates.insert(updates.end(), others.begin(), others.end());
  return updates.size() == 1 ? update : group(graph, updates, "train_step");
}

void add_steps(Graph& graph, TrainingGraph& built, const TrainingGraphOptions& options,
               const GradientRows& separate, double initial) {
  if (separate.empty()) built.canonical = joint_loss_is_canonical(built.towers, options.forms);
  StepBuilder steps(graph, built, options, separate, initial);
  for (const BatchForm& form : options.forms) steps.add(form);
}

}  // namespace belfry
