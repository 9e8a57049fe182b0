// A training step, compiled: the update of one or more towers, with their losses and metrics.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/run/session.h"
#include "belfry/trainers/core/metric_totals.h"
#include "belfry/trainers/core/training_nodes.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {

struct Batch;

// Element i of a floating-point tensor.
double number_in(const Tensor& tensor, std::size_t i);

// Adds the inputs of a tower, with `rows` rows, to `feeds`. `first` is the number of its first row
// in the batch of all towers; none if rows are not numbered.
void add_feeds(const TowerRecord& tower, std::int64_t rows, std::optional<std::int64_t> first,
               std::vector<FeedType>& feeds);
// Adds the loss of a tower, then its metrics, to `fetches`: what MetricNumbers describes.
void add_fetches(const TowerRecord& tower, std::vector<Fetch>& fetches);

// What a process asks of all processes in a step.
struct StepRequest {
  int signal = 0;           // end because of this signal; 0: do not end
  bool comparison = false;  // compare variables after the step
  bool stop = false;        // end after the step, because a callback called stop()
  // ReplicaHashes::all() of this process before the step; 0: none. Of all processes: 0 as well.
  std::uint64_t hash = 0;
  bool hashes_differ = false;  // of all processes
};

class TrainingStep {
 public:
  // Compiles a step for the inputs of `towers`, for which `nodes` were built. `rates` are the
  // placeholders of the learning rate. With `keeps_gradients`, gradients() returns the combined
  // gradients, and with `keeps_contributions` contributions() those of each tower; watched()
  // returns those tensors.
  TrainingStep(Session& session, const StepNodes& nodes, std::span<const TowerRecord> towers,
               std::span<const Output> rates, PrepareOptions options = {},
               bool keeps_gradients = false, std::span<const NamedOutput> watched = {},
               bool keeps_contributions = false);

  // Whether it has inputs on GPUs. Without any there is nothing to stage.
  bool stages() const { return stages_; }
  // Stages the inputs of a batch. `inputs` has all fields of the first tower, then of the next,
  // with their rows. One thread may stage while another runs (CompiledStep::stage). Neither
  // allocates anything, except for a trace. If there is nothing to stage, it reads nothing and
  // returns an empty object.
  StagedFeeds stage(std::span<const Tensor> inputs, std::stop_token stop = {});
  // Runs the step with the inputs that were staged. Feeds `rate` to the placeholders, if there are
  // any.
  void run(StagedFeeds staged, std::span<const Tensor> inputs, double rate,
           RunOptions options = {});
  // Sends this request to all processes from the next run on (StepNodes::request).
  void request(StepRequest request) { request_ = request; }
  // The requests of all processes in the last run, combined; empty for a lone process. Of several
  // signals, the one with the largest number counts.
  StepRequest requested() const;
  // Whether the last run updated anything (StepNodes::unscaling); true if the step has none.
  bool applied() const { return applied_ == 0 || fetched_applied(); }
  // The mean loss over the towers in the last run, weighted by samples. If all towers have equally
  // many samples, it is tower_mean().
  double loss() const { return combined(0, 0); }
  // The loss of each tower of all processes in the last run.
  std::vector<double> tower_losses() const;
  // The metrics of the towers, combined.
  void metrics_of_run(std::span<double> result) const;
  // Adds the scores of the towers of this process, one table after the other. The rest of the
  // tables.
  std::span<ScoreTable> add_scores(std::span<ScoreTable> tables) const;
  const MetricNumbers& numbers() const { return numbers_; }
  // "gradient_norm", the norm of all combined gradients in the last run, as updates take them
  // before they are clipped; then "gradient_norm/NAME" of each variable. Empty unless options ask
  // for them. NaN if f16 skips the update.
  std::vector<NamedValue> gradient_norms() const;
  // StepNodes::gradients in the last run, by the logical names of variables.
  std::vector<NamedTensor> gradients() const;
  std::vector<NamedTensor> watched() const;
  // StepNodes::tower_gradients in the last run, by the logical names of variables; of towers
  // without samples, none.
  std::vector<std::vector<NamedTensor>> contributions() const;
  std::shared_ptr<const Plan> plan() const { return step_->plan(); }

 private:
  using NamedFetches = std::vector<std::pair<std::string, std::size_t>>;

  std::vector<NamedTensor> tensors_of(const NamedFetches& fetches) const;
  // Number i of a part of a tower that has samples; towers are counted over all processes.
  double number(std::size_t part, std::size_t i, std::size_t tower) const;
  bool fetched_applied() const;
  // Of all towers.
  double combined(std::size_t part, std::size_t i) const;

  CompiledStep* step_;
  NamedFetches gradients_, watched_;
  std::vector<NamedFetches> contributions_;    // by tower
  std::vector<std::string> norms_;             // the variables of gradient_norms()
  std::size_t squares_ = 0, squares_end_ = 0;  // fetches of the sums of squares of their gradients
  bool has_factor_ = false;  // the fetch after those is StepNodes::unscaling.factor
  bool stages_;
  MetricNumbers numbers_;
  std::size_t rates_;
  bool equal_;                       // all towers of all processes have equally many samples
  std::vector<double> samples_;      // of the towers of all processes
  std::vector<std::size_t> losses_;  // fetches, by tower of this process
  std::vector<std::size_t> scored_;  // of them, those of towers that have samples
  std::size_t of_all_ = 0;           // the fetch of StepNodes::of_all_towers; 0: there is none
  std::size_t applied_ = 0;          // the fetch of StepNodes::unscaling.applied; 0: none
  std::size_t per_process_;          // how many of its values belong to one process
  StepRequest request_;
  // Inputs, rates and zeros, for a run and for staging; empty if there are inputs alone.
  std::vector<Tensor> feeds_, next_feeds_;
};

// The sum of the losses of runs, then their metrics: the numbers of the step that they make. NaN
// for the metrics of runs that were left out at the end.
void numbers_of_runs(std::span<const TrainingStep> runs, std::span<double> result);
// Adds the scores of these runs: those of this process.
void add_scores_of_runs(std::span<const TrainingStep> runs, std::span<ScoreTable> tables);

// A plan, and how often a step runs it.
struct PlanOfStep {
  std::shared_ptr<const Plan> plan;
  std::int64_t runs;
};

// Which steps are watched: every one whose number, from 1, is a multiple of one of the periods.
struct WatchedSteps {
  std::vector<std::int64_t> periods = {};
  std::int64_t steps_per_epoch = 1, batches_per_step = 1;
  std::int64_t before = 0;  // steps before epoch 0 of the plan, in runs with other epochs

  std::int64_t step_at(BatchPlan::Position position) const {
    return position.epoch * steps_per_epoch + position.batch / batches_per_step;
  }
  bool is_due(BatchPlan::Position position) const {
    const std::int64_t number = before + step_at(position) + 1;
    return std::ranges::any_of(periods, [&](std::int64_t every) { return number % every == 0; });
  }
};

// The compiled steps of a trainer.
struct TrainingSteps {
  // For each form of batches (Batch::form), one for each loss, which updates its variables.
  std::vector<TrainingStep> by_form;
  // The same steps, which also fetch what is watched, for steps where that is due; none: nothing
  // is.
  std::vector<TrainingStep> watching;
  WatchedSteps watches;
  std::size_t losses = 1;
  // If a step takes several batches, all of one form: the step for the first batch, and the step
  // for the batches between the first and the last, if there are any.
  std::optional<TrainingStep> first, between;
  // One for each free-running tower. There are no other steps then.
  std::vector<TrainingStep> free;

  // Those that run `batch`, one after the other, if each training step takes `batches_per_step`
  // batches: one for each loss.
  std::span<TrainingStep> of(const Batch& batch, std::int64_t batches_per_step);
  // In the order of their runs, for full batches before others.
  std::vector<TrainingStep*> all();
  std::vector<std::shared_ptr<const Plan>> plans() const;
  // The plans of a step with full batches.
  std::vector<PlanOfStep> plans_with_runs(std::int64_t batches_per_step) const;
};

}  // namespace belfry
