// The graph that a trainer builds: training towers, their update, and towers that predict.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belfry/allreduce/strategy.h"
#include "belfry/ops/precision.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/core/model.h"
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/data/dataset.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry {

// How a step takes several batches, one run after another (accumulation.h).
struct Accumulation {
  Node* begin = nullptr;  // the run of the first batch; null if a step takes one
  Node* add = nullptr;    // of those between the first and the last; null if there are none
};

// What a step with batches of one form runs: a form says how a batch is divided among the towers.
struct StepNodes {
  BatchForm batch;           // of this process's towers
  BatchForm all;             // of the towers of all processes
  Node* train_op = nullptr;  // updates of variables, slots and moving averages
  // If a step takes several batches: what is run for those before the last. They move averages.
  Accumulation accumulation = {};
  // Of all towers together, by tower 0's variables; none where towers update by their own. If a
  // step takes several batches, their sums.
  std::vector<Gradient> gradients = {};
  // Where there are several processes, else empty: f64, process by process, each tower's loss and
  // metrics, then what was fed to `request` there.
  Output of_all_towers;
  Output request;  // a scalar placeholder, f64: see Trainer::interrupt()
  // To be fed with zeros: what towers that do not count would compute for layers over all towers.
  std::vector<Output> zeros;
  // Feeds with zeros, of which there are no rows where a size is unknown.
  std::vector<FeedType> zero_feeds() const;
  // Whether tower t computes anything.
  bool runs(std::size_t t) const { return batch.rows[t] > 0; }
};

// What updates the variables in such a step.
struct UpdateNodes {
  Node* update = nullptr;          // of the variables, in the run of the last batch
  Accumulation accumulation = {};  // of the batches before it, if a step takes several
};

// How it is to do so.
struct UpdateOptions {
  ReduceOptions reduce = {};                     // of the towers' gradients
  OptimizerSlots slots = OptimizerSlots::kMake;  // kReuse: another form has been built
  Unscaling unscaling = {};                      // of gradients of a scaled loss
};

// The state of loss scaling, one for all towers. Saved as variables are.
struct LossScale {
  Variable scale, good_steps, skipped_steps;  // ops/loss_scale.h
  explicit operator bool() const { return static_cast<bool>(scale); }
};

struct LossScaleOptions {
  double initial = 32768;
  std::int64_t growth_steps = 1000;
};

struct TrainingGraph {
  std::vector<TowerRecord> towers;
  // On the devices of the first training towers; all on tower 0's variables, or on their averages
  // where the update moves some (weight_averages.h); for any number of samples.
  std::vector<TowerRecord> predictors;
  std::vector<StepNodes> steps;  // one per form of batches; none if the towers train apart
  // Instead of them, if the towers train apart: a node of each that makes one step and needs
  // nothing of the others.
  std::vector<Node*> tower_ops;
  std::vector<Output> learning_rates;  // scalar placeholders to be fed with the optimizer's rate
  LossScale loss_scale;                // empty unless the precision is f16
  // Whether gradients of towers are sums of each tower's, in the order of the towers. False if
  // layers are synchronised over towers that share variables, and a tower uses one of these twice,
  // or has no samples in some form of batches.
  bool canonical = true;
};

struct TrainingGraphOptions {
  const Model& model;
  std::span<const DeviceSpec> devices;
  VariablePolicy variables;
  std::span<const Dataset::Field> fields;
  // Of batches, for the towers of all processes. If there are several, each tower has rows.
  std::span<const BatchForm> forms;
  // Combines the towers' gradients. Where K is a power of two and all towers count alike, each
  // tower's loss gradient starts at 1 / K, which is exact, and ReduceOptions ask for the sum.
  std::function<GradientTable(const GradientTable&, const ReduceOptions&)> combine = {};
  // Instead of `combine`: an update by the gradients of the towers.
  std::function<UpdateNodes(const GradientTable&, const UpdateOptions&)> update = {};
  // `update` combines them, too: it heeds ReduceOptions and batches_per_step, as `combine` does.
  bool update_combines = false;
  // Instead of either, for towers that train apart: a node per tower. Averages are then moved by
  // each tower's moments. There must be one form, in which all towers count alike.
  std::function<std::vector<Node*>(const GradientTable&)> update_apart = {};
  std::size_t predictors = 1;  // at most one per device
  // Of towers and predictors: an AutocastScope around the model. Losses are f32 or f64.
  Precision precision = Precision::kF32;
  LossScaleOptions loss_scale = {};         // of f16, which towers that train apart do not take
  std::vector<std::string> recompute = {};  // GradientOptions::recompute
  // What is made of combined gradients.
  Optimizer optimizer = {};
  double clip_norm = 0;      // TrainerOptions::clip_norm
  int batches_per_step = 1;  // more: one form, combined gradients, and no loss scale
};

// Builds the training towers, what updates their variables, and the towers that predict.
//
// The model is built once per device, with a placeholder per field: [rows, sample...]. The rows are
// those of the forms of batches, "?" if these differ or a form has none. Towers that predict take
// [?, sample...]. For each form, `combine` combines the gradients of the losses, and the optimizer
// applies them; or `update` makes one node that does both. `update_apart` makes one per tower. The
// nodes of kUpdateOps run with these, or those of each tower with its own. Where the towers of a
// form have different numbers of samples, these weigh losses and moments of batch norms. A tower
// that a form feeds no rows is not part of its step. Throws InvalidArgument as Model, replicate()
// and GradientTable do, and if names of fields are empty, equal, or have one of ":/ ".
//
// With f16 the loss is scaled. Gradients are checked before they are combined, on the devices where
// they are. One node for all towers says whether the update is applied (Unscaling). A step in which
// a gradient is not finite, or so large that a sum over towers need not be, leaves variables, slots
// and moving averages as they are.
//
// A model with layers that are synchronised over towers (TowerRecord::contributions) is
// differentiated once, as the mean of all towers' losses by samples. StepNodes::zeros has what
// towers without samples would contribute, numbers of samples among it. Towers that train apart
// cannot have such layers, and those of several processes need samples in every form.
TrainingGraph build_training_graph(Graph& graph, const TrainingGraphOptions& options);

}  // namespace belfry
