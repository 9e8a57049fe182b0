// The graph that a trainer builds: training towers, their update, and towers that predict.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belfry/allreduce/strategy.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/data/dataset.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry {

struct TrainerKind;
struct TrainerOptions;

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

struct TrainingGraph {
  std::vector<TowerRecord> towers;
  // On the devices of the first training towers; all on tower 0's variables, or on their averages
  // where the update moves some (weight_averages.h); for any number of samples.
  std::vector<TowerRecord> predictors;
  std::vector<StepNodes> steps;  // one per form of batches; none if the towers run free
  // Instead of them, if the towers run free: a node of each that makes one step and needs nothing
  // of the others.
  std::vector<Node*> tower_ops;
  std::vector<Output> learning_rates;  // scalar placeholders to be fed with the optimizer's rate
  LossScale loss_scale;                // empty unless the precision is f16
  // Whether gradients of towers are sums of each tower's, in the order of the towers. False if
  // layers are synchronised over towers that share variables, and a tower uses one of these twice,
  // or has no samples in some form of batches.
  bool canonical = true;
};

// What a graph is built for; all of it is borrowed.
struct TrainingGraphOptions {
  const TrainerKind& kind;        // where variables live, and how gradients change them
  const TrainerOptions& trainer;  // model, devices, optimizer and all that changes the graph
  std::span<const Dataset::Field> fields;
  // Of batches, for the towers of all processes. If there are several, each tower has rows.
  std::span<const BatchForm> forms;
  // Called once, before `kind` first combines gradients, with those of the towers. May put what it
  // chooses into `trainer`.
  std::function<void(const GradientTable&)> choose = {};
  std::size_t predictors = 1;  // at most one per device
};

// Builds the training towers, what updates their variables, and the towers that predict.
//
// The model is built once per device, with a placeholder per field: [rows, sample...]. The rows are
// those of the forms of batches, "?" if these differ or a form has none. Towers that predict take
// [?, sample...]. For each form, TrainerKind::combine combines the gradients of the losses, and the
// optimizer applies them; or update_parts() does both, or TrainerKind::update. The nodes of
// kUpdateOps run with these. If the towers run free, TrainerKind::update_free makes a node per
// tower, and averages are moved by each tower's own moments; there must be one form, in which all
// towers count alike. Where the towers of a form have different numbers of samples, these weigh
// losses and moments of batch norms. A tower that a form feeds no rows is not part of its step.
//
// Where K is a power of two and all towers count alike, each tower's loss gradient starts at 1 / K,
// which is exact, and ReduceOptions ask for the sum. Throws InvalidArgument as Model, replicate()
// and GradientTable do, and if names of fields are empty, equal, or have one of ":/ ".
//
// With f16 the loss is scaled. Gradients are checked before they are combined, on the devices where
// they are. One node for all towers says whether the update is applied (Unscaling). A step in which
// a gradient is not finite, or so large that a sum over towers need not be, leaves variables, slots
// and moving averages as they are.
//
// A model with layers that are synchronised over towers (TowerRecord::contributions) is
// differentiated once, as the mean of all towers' losses by samples. StepNodes::zeros has what
// towers without samples would contribute, numbers of samples among it. Towers that run free
// cannot have such layers, and those of several processes need samples in every form.
TrainingGraph build_training_graph(Graph& graph, const TrainingGraphOptions& options);

}  // namespace belfry
