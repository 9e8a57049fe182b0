// Measures a model on data that it does not train on.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/group/processes.h"
#include "belfry/framework/run/session.h"
#include "belfry/trainers/core/training_step.h"
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/data/gatherer.h"

namespace belfry {

// Compiles predictors, which differ only in their devices, for `batch` samples each. Feeds: the
// inputs of each in order. Fetches: the loss and metrics of each.
CompiledStep& prepare_predictors(Session& session, std::span<const TowerRecord> predictors,
                                 std::int64_t batch);

class Evaluator {
 public:
  struct Options {
    std::int64_t global_batch;       // the most samples at once, on all devices
    std::int64_t shards;             // of the global batch, as the session has them
    std::int64_t towers;             // of all processes
    Processes* processes = nullptr;  // processes that share the work; null: there is one
    int data_workers = 1;            // threads that gather a batch
    std::int64_t batches = 0;        // at most so many global batches of samples; 0: all samples
  };

  // Compiles the predictors for the blocks of an EvaluationPlan. Borrows all.
  Evaluator(Session& session, std::span<const TowerRecord> predictors, const Dataset& data,
            const Options& options);

  // The loss and each metric of the predictors, in their order: means over all samples, each taken
  // exactly once, also by weights (weighted_mean.h), and the ends of sums over all samples. Blocks
  // count by their numbers of samples. All processes call it, take parts of the samples, and return
  // the same. P processes of K predictors give the bits of one process of P * K. For numbers of
  // predictors and shards that are powers of two, the bits do not depend on the number of
  // predictors. If there is an `on_samples`, it is called repeatedly with the number of samples
  // that all processes have taken so far. If that returns false, the evaluation ends and there are
  // no values; of several processes, all must return the same.
  std::vector<NamedValue> run(const std::function<bool(std::int64_t)>& on_samples = {});
  // That a run takes.
  std::int64_t samples() const { return batches_.samples(); }
  // not_finite_input() of the first samples of this process in the last run whose loss was not
  // finite; "" if there are none.
  const std::string& not_finite_input() const { return input_; }

 private:
  // Some of this process's predictors, compiled for the blocks of a run.
  struct Shot {
    std::size_t predictors = 0;
    std::int64_t batch = 0;  // samples of each
    CompiledStep* step = nullptr;
    std::vector<Tensor> inputs;      // all fields of predictor 0, then of 1, ...
    std::vector<std::byte*> memory;  // of inputs
  };

  // Block by block, for each predictor the numbers of its loss and metrics.
  using Values = std::vector<double>;
  // Block b of run r of the plan.
  struct Block {
    std::size_t r;
    std::int64_t b;
  };

  Shot prepare(Session& session, std::size_t predictors, std::int64_t batch) const;
  void look_at_input(const Shot& shot, std::int64_t first);
  void take(Shot& shot, std::int64_t first, Values& values);
  std::vector<Values> of_all(const Values& own) const;
  void add(std::vector<Block>& blocks, Values& own);
  bool takes(std::size_t process, const EvaluationPlan::Run& run, std::int64_t block) const;

  Session& session_;
  std::span<const TowerRecord> predictors_;
  const Dataset& data_;
  EvaluationPlan batches_;
  Gatherer gatherer_;
  Processes* processes_;
  ProcessPlace place_;
  MetricTotals totals_;
  std::vector<Shot> shots_;  // one for each run of the plan
  std::string input_;        // not_finite_input()
};

}  // namespace belfry
