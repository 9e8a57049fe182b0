// What a training graph consists of: its towers, and the nodes that its steps run.
#pragma once
#include <vector>

#include "belfry/allreduce/strategy.h"
#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry {

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
  // The combined gradients, by tower 0's variables; empty if towers update with their own
  // gradients. If a step takes several batches, the sums over these.
  std::vector<Gradient> gradients = {};
  // Those of each tower of this process, before they are combined; one row for all towers if they
  // share variables and layers are synchronised.
  GradientRows tower_gradients = {};
  // f64; empty unless there are several processes. For each process it has the loss and metrics of
  // each of its towers, followed by the StepRequest of that process.
  Output of_all_towers;
  Output request;  // a scalar placeholder, f64, for a StepRequest
  // Scalars i64, the same in all processes: 1, or 0 if the step, or a batch of it, has a loss,
  // gradient or moment that is not finite. The step then updates nothing. Empty without a guard.
  Output applied, batch_applied;
  // Tensors that towers without samples would contribute to layers over all towers. Each run must
  // feed zeros for them.
  std::vector<Output> zeros;
  // The types of these feeds. Unknown sizes become 0.
  std::vector<FeedType> zero_feeds() const;
  // Whether tower t computes anything.
  bool runs(std::size_t t) const { return batch.rows[t] > 0; }
};

// The nodes that update the variables in such a step.
struct UpdateNodes {
  Node* update = nullptr;               // updates the variables, in the run of the last batch
  AccumulationNodes accumulation = {};  // for the batches before it, if a step takes several
  Output applied;  // if it takes several: UpdateOptions::unscaling.applied, of all of them
};

// How these nodes are built.
struct UpdateOptions {
  ReduceOptions reduce = {};                     // how the towers' gradients are combined
  OptimizerSlots slots = OptimizerSlots::kMake;  // kReuse: another form has been built
  Unscaling unscaling = {};  // undoes the loss scale, and guards the update; empty: neither
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
  // If the towers run free, each has a node instead, which makes one step independently of the
  // others.
  std::vector<Node*> tower_ops;
  std::vector<Output> learning_rates;  // scalar placeholders to be fed with the optimizer's rate
  LossScale loss_scale;                // empty unless the precision is f16
  // Whether combined gradients are sums over towers, in the order of the towers. False if layers
  // are synchronised over towers that share variables, and a tower either uses a variable twice or
  // has no samples in some form of batches.
  bool canonical = true;
};

}  // namespace belfry
