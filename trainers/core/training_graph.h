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
struct AccumulationNodes {
  Node* begin = nullptr;  // run for the first batch; null if a step takes one
  Node* add = nullptr;  // run for each batch between the first and the last; null if there is none
};

// The nodes of a step with batches of one form. A form says how towers share a batch.
struct StepNodes {
  BatchForm batch;           // the shares of this process's towers
  BatchForm all;             // the shares of the towers of all processes
  Node* train_op = nullptr;  // updates variables, slots and moving averages
  // If a step takes several batches, the nodes that run for those before the last. They move
  // averages, too.
  AccumulationNodes accumulation = {};
  // The combined gradients, by tower 0's variables; none where towers update by their own. If a
  // step takes several batches, the sums over these.
  std::vector<Gradient> gradients = {};
  // f64, empty unless there are several processes. Process by process, it has the loss and metrics
  // of each tower, and then what was fed to `request` there.
  Output of_all_towers;
  Output request;  // a scalar placeholder, f64: see Trainer::interrupt()
  // Tensors that towers without samples would give to layers over all towers. They are to be fed
  // with zeros.
  std::vector<Output> zeros;
  // The feeds of these tensors. They have no rows where a size is unknown.
  std::vector<FeedType> zero_feeds() const;
  // Whether tower t computes anything.
  bool runs(std::size_t t) const { return batch.rows[t] > 0; }
};

// The nodes that update the variables in such a step.
struct UpdateNodes {
  Node* update = nullptr;               // updates the variables, in the run of the last batch
  AccumulationNodes accumulation = {};  // for the batches before it, if a step takes several
};

// How these nodes are built.
struct UpdateOptions {
  ReduceOptions reduce = {};                     // how the towers' gradients are combined
  OptimizerSlots slots = OptimizerSlots::kMake;  // kReuse: another form has been built
  Unscaling unscaling = {};                      // if the loss is scaled, so are its gradients
};

// The state of loss scaling, one for all towers. It is saved as variables are.
struct LossScale {
  Variable scale, good_steps, skipped_steps;  // ops/loss_scale.h
  explicit operator bool() const { return static_cast<bool>(scale); }
};

struct TrainingGraph {
  std::vector<TowerRecord> towers;
  // Towers that predict, on the devices of the first training towers, for any number of samples.
  // They read tower 0's variables, or their averages where the update moves some
  // (weight_averages.h).
  std::vector<TowerRecord> predictors;
  std::vector<StepNodes> steps;  // one per form of batches; none if the towers run free
  // If the towers run free, each has a node instead, which makes one step and needs nothing of the
  // other towers.
  std::vector<Node*> tower_ops;
  std::vector<Output> learning_rates;  // scalar placeholders to be fed with the optimizer's rate
  LossScale loss_scale;                // empty unless the precision is f16
  // Whether combined gradients add those of each tower, in the order of the towers. False if layers
  // are synchronised over towers that share variables, and a tower uses a variable twice, or has no
  // samples in some form of batches.
  bool canonical = true;
};

// What build_training_graph() builds a graph for, and borrows.
struct TrainingGraphOptions {
  const TrainerKind& kind;        // where variables live, and how gradients change them
  const TrainerOptions& trainer;  // model, devices, optimizer and all that changes the graph
  std::span<const Dataset::Field> fields;
  // The forms of batches, for the towers of all processes. Of several processes each tower is fed
  // rows.
  std::span<const BatchForm> forms;
  // Called once, with the towers' gradients, before `kind` first combines them. It may put what it
  // chooses into `trainer`.
  std::function<void(const GradientTable&)> choose = {};
  std::size_t predictors = 1;  // at most one per device
};

// Builds the training towers, what updates their variables, and the towers that predict.
//
// The model is built once per device, with a placeholder per field: [rows, sample...]. The forms of
// batches give the rows, "?" if they differ or a form has none. Towers that predict take
// [?, sample...]. For each form, TrainerKind::combine combines the gradients of the losses, and the
// optimizer applies them. Or update_parts() does both, or TrainerKind::update. The nodes of
// kUpdateOps run with the update. If the towers run free, TrainerKind::update_free makes a node per
// tower, and each tower's own moments move averages. There must be one form then, in which all
// towers count alike. Where the towers of a form have different numbers of samples, these weigh
// losses and moments of batch norms. A tower that a form feeds no rows is not part of its step.
//
// Where K is a power of two and all towers count alike, each tower's loss gradient starts at 1 / K,
// which is exact, and ReduceOptions ask for the sum. Throws InvalidArgument as ModelFunction,
// replicate() and GradientTable do, and if names of fields are empty, equal, or have one of ":/ ".
//
// With f16 the loss is scaled. Gradients are checked before they are combined, on the devices where
// they are. One node for all towers says whether the update is applied (Unscaling). A step in which
// a gradient is not finite, or so large that a sum over towers need not be, leaves variables, slots
// and moving averages as they are.
//
// A model with layers that are synchronised over towers (TowerRecord::contributions) is
// differentiated once, as the mean of all towers' losses by samples. StepNodes::zeros has the
// tensors that towers without samples would contribute, with their numbers of samples. Towers that
// run free cannot have such layers, and those of several processes need samples in every form.
TrainingGraph build_training_graph(Graph& graph, const TrainingGraphOptions& options);

}  // namespace belfry
