// A training step, compiled: the update of one or more towers, with their losses and metrics.
#pragma once
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
// Adds the loss of a tower, then its metrics, to `fetches`.
void add_fetches(const TowerRecord& tower, std::vector<Fetch>& fetches);

// What a process asks of all processes in a step.
struct StepRequest {
  int signal = 0;           // end because of this signal; 0: do not end
  bool comparison = false;  // compare variables after the step
  bool stop = false;        // end after the step, because a callback called stop()
};

class TrainingStep {
 public:
  // Compiles a step for the inputs of `towers`, for which `nodes` were built. `rates` are the
  // placeholders of the learning rate. With `keeps_gradients`, gradients() returns the combined
  // gradients.
  TrainingStep(Session& session, const StepNodes& nodes, std::span<const TowerRecord> towers,
               std::span<const Output> rates, PrepareOptions options = {},
               bool keeps_gradients = false);

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
  // StepNodes::applied of the last run; true if the step has none.
  bool applied() const { return applied_ == 0 || fetched_applied(); }
  // The mean loss over the towers in the last run, weighted by samples. If all towers have equally
  // many samples, it is tower_mean().
  double loss() const { return combined(0, 0); }
  // The loss and metrics of the towers, combined.
  void numbers_of_run(std::span<double> result) const;
  const MetricNumbers& numbers() const { return numbers_; }
  // StepNodes::gradients in the last run, by the logical names of variables.
  std::vector<NamedTensor> gradients() const;
  std::shared_ptr<const Plan> plan() const { return step_->plan(); }

 private:
  // Number i of a part of a tower that has samples; towers are counted over all processes.
  double number(std::size_t part, std::size_t i, std::size_t tower) const;
  bool fetched_applied() const;
  // Of all towers.
  double combined(std::size_t part, std::size_t i) const;

  CompiledStep* step_;
  std::vector<std::pair<std::string, std::size_t>> gradients_;  // variable and fetch
  bool stages_;
  MetricNumbers numbers_;
  std::size_t rates_;
  bool equal_;                       // all towers of all processes have equally many samples
  std::vector<double> samples_;      // of the towers of all processes
  std::vector<std::size_t> losses_;  // fetches, by tower of this process
  std::size_t of_all_ = 0;           // the fetch of StepNodes::of_all_towers; 0: there is none
  std::size_t applied_ = 0;          // the fetch of StepNodes::applied; 0: there is none
  std::size_t per_process_;          // how many of its values belong to one process
  StepRequest request_;
  // Inputs, rates and zeros, for a run and for staging; empty if there are inputs alone.
  std::vector<Tensor> feeds_, next_feeds_;
};

// A plan, and how often a step runs it.
struct PlanOfStep {
  std::shared_ptr<const Plan> plan;
  std::int64_t runs;
};

// The compiled steps of a trainer.
struct TrainingSteps {
  // One for each form of batches (Batch::form), which updates the variables.
  std::vector<TrainingStep> by_form;
  // If a step takes several batches, all of one form: the step for the first batch, and the step
  // for the batches between the first and the last, if there are any.
  std::optional<TrainingStep> first, between;
  // One for each free-running tower. There are no other steps then.
  std::vector<TrainingStep> free;

  // The step that runs `batch`, if each training step takes `batches_per_step` batches.
  TrainingStep& of(const Batch& batch, std::int64_t batches_per_step);
  // In the order of their runs, for full batches before others.
  std::vector<TrainingStep*> all();
  std::vector<std::shared_ptr<const Plan>> plans() const;
  // The plans of a step with full batches.
  std::vector<PlanOfStep> plans_with_runs(std::int64_t batches_per_step) const;
};

}  // namespace belfry
