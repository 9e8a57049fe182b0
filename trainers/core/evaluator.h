// Measures a model on data that it does not train on.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "belfry/framework/run/session.h"
#include "belfry/trainers/core/training_step.h"
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/data/gatherer.h"

namespace belfry {

// Compiles predictors, which are equal but for their devices, for `batch` samples each. Feeds: the
// inputs of each in order; fetches: the loss and metrics of each.
Step& prepare_predictors(Session& session, std::span<const TowerRecord> predictors,
                         std::int64_t batch);

class Evaluator {
 public:
  // Compiles the predictors for `batch` samples each; and the first for `batch` samples and for the
  // shorter batch that may be left at the end. `data_workers` threads gather a batch. Borrows all.
  Evaluator(Session& session, std::span<const TowerRecord> predictors, const Dataset& data,
            std::int64_t batch, int data_workers = 1);

  // The loss and each metric of the predictors, in their order: means over all samples, each taken
  // exactly once. Batches count by their numbers of samples. The bits do not depend on the number
  // of predictors. Calls `on_samples`, if there is one, with how many have been taken, again and
  // again.
  std::vector<NamedValue> run(const std::function<void(std::int64_t)>& on_samples = {});

 private:
  // Some of the predictors, compiled for batches of one size.
  struct Shot {
    std::size_t predictors = 0;
    Step* step = nullptr;
    std::vector<Tensor> inputs;      // all fields of predictor 0, then of 1, ...
    std::vector<std::byte*> memory;  // of inputs
  };

  Shot prepare(Session& session, std::size_t predictors, std::int64_t batch) const;
  void add(Shot& shot, std::int64_t first, std::vector<NamedValue>& sums);

  std::span<const TowerRecord> predictors_;
  const Dataset& data_;
  EvaluationPlan plan_;
  Gatherer gatherer_;
  Shot all_, one_, last_;  // those that the data need
};

}  // namespace belfry
