// What a training graph consists of: its towers, and the nodes that its steps run.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "belfry/allreduce/strategy.h"
#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/optimizers/clipping.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry {

// How a step takes several batches, one run after another (accumulation.h).
struct AccumulationNodes {
  Node* begin = nullptr;  // run for the first batch; null if a step takes one
  Node* add = nullptr;  // run for each batch between the first and the last; null if there is none
};

// Of a StepRequest.
inline constexpr std::int64_t kNumbersOfRequest = 3;

// How large gradients may be that a step combines.
struct GradientRange {
  double sum = 1;       // so many of them are added up
  bool squares = true;  // their squares must be finite, too: slots of optimizers have them
  // The largest magnitude of a type.
  double largest(DType dtype) const;
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
  GradientSquares squares = {};  // of these; empty unless options ask for norms
  // By which updates multiply these gradients, before they are clipped, and whether they are made:
  // not if a batch of the step has a loss, gradient or moment that is not finite. Empty without a
  // guard, loss scale or several batches.
  Unscaling unscaling = {};
  GradientRange range = {};  // of the gradients that pass that check
  // Those of each tower of this process, before they are combined; one row for all towers if they
  // share variables and layers are synchronised.
  GradientRows tower_gradients = {};
  // f64; empty unless there are several processes. For each process it has the loss and metrics of
  // each of its towers, followed by the StepRequest of that process.
  Output of_all_towers;
  Output request;  // a placeholder of kNumbersOfRequest f64, for a StepRequest
  // Unscaling::applied of a batch alone.
  Output batch_applied;
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
  Unscaling unscaling = {};      // if it takes several: UpdateOptions::unscaling, of all of them
  GradientSquares squares = {};  // StepNodes::squares
};

// How these nodes are built.
struct UpdateOptions {
  ReduceOptions reduce = {};                     // how the towers' gradients are combined
  OptimizerSlots slots = OptimizerSlots::kMake;  // kReuse: another form has been built
  Unscaling unscaling = {};  // undoes the loss scale, and guards the update; empty: neither
};

// The state of loss scaling, one for all towers. It is saved as variables are.
struct LossScale {
  Variable scale, good_steps;  // ops/loss_scale.h
  explicit operator bool() const { return static_cast<bool>(scale); }
};

// A loss, and how it is trained. Most trainings have one, whose towers are those of the graph.
struct TrainedLoss {
  std::string name;                 // of one of several losses; else ""
  Optimizer optimizer;              // its only one
  std::vector<TowerRecord> towers;  // with its value, its variables and what its runs report
  // The same for batches of other buckets than the first form's (LengthBuckets).
  std::map<std::size_t, std::vector<TowerRecord>> of_buckets = {};
  LossScale loss_scale;  // that of the graph
  // One per form of batches; none if the towers run free, or nothing is trained.
  std::vector<StepNodes> steps;
  std::vector<Output> learning_rates;  // scalar placeholders to be fed with the optimizer's rate
  // Whether combined gradients are sums over towers, in the order of the towers. False if layers
  // are synchronised over towers that share variables, and a tower either uses a variable twice or
  // has no samples in some form of batches.
  bool canonical = true;

  // The towers that take batches of a form.
  const std::vector<TowerRecord>& towers_of(const BatchForm& form) const {
    const auto other = of_buckets.find(form.bucket);
    return other == of_buckets.end() ? towers : other->second;
  }
};

struct TrainingGraph {
  std::vector<TowerRecord> towers;  // for batches of the first form
  // Towers that predict, on the first devices of the training, for any number of samples.
  // They read tower 0's variables, or their averages where the update moves some
  // (weight_averages.h).
  std::vector<TowerRecord> predictors;
  std::vector<TrainedLoss> losses;            // in the order in which a step trains them
  std::set<std::string, std::less<>> frozen;  // the variables that groups freeze
  // If the towers run free, each has a node instead, which makes one step independently of the
  // others.
  std::vector<Node*> tower_ops;
  LossScale loss_scale;  // empty unless the precision is f16

  bool canonical() const { return std::ranges::all_of(losses, &TrainedLoss::canonical); }
};

}  // namespace belfry
