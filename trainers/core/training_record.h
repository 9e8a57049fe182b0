// The record of a training so far, which callbacks and reports read.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/trainers/core/divergence_watch.h"
#include "belfry/trainers/core/training_step.h"

namespace belfry {

class OutputHashes;

// The gradients of a tower, before they are combined, by the logical names of variables.
struct TowerContribution {
  std::int64_t tower = 0;  // of all processes
  std::vector<NamedTensor> gradients = {};
};

class TrainingRecord {
 public:
  TrainingRecord(BuiltTraining& built, const TrainingProgress& progress);

  // For "loss" (of several, their sum) and the tower function's metrics, what the samples of the
  // last step give: means over batches and towers, weighted by their samples where these differ,
  // and the ends of sums; NaN before the first step. For "validation_loss" and
  // "validation_<metric>", the value of the last evaluation. Throws NotFoundError, listing the
  // known names.
  double metric(std::string_view name) const;
  bool has_metric(std::string_view name) const { return find_metric(name) != nullptr; }
  // Sets a metric, for callbacks. Callback::after_metrics() is called once all callbacks of this
  // step, epoch or evaluation have been called.
  void set_metric(std::string_view name, double value);
  // Sets what metric() returns before the first step and evaluation: the metrics of the run that
  // this one resumes.
  void resume_metrics(const std::vector<NamedValue>& values);
  // The names of the metrics that exist after an epoch, or, with test data, after an evaluation:
  // those of the model and of callbacks (Callback::metrics()).
  std::vector<std::string> expected_metrics() const;
  // The metrics of the last step, "loss" first.
  const std::vector<NamedValue>& step_metrics() const { return step_metrics_; }
  // The metrics that were set, by an evaluation for example.
  const std::vector<NamedValue>& set_metrics() const { return other_metrics_; }

  // The combined gradients of the last step, if options().keeps_gradients, by the logical names of
  // tower 0's variables. Empty before the first step, and if towers update with their own
  // gradients. With f16 they are scaled as the loss is. If a step takes several batches, they are
  // sums over these. They are not clipped.
  std::vector<NamedTensor> gradients() const;

  // What the towers of this process contributed to the last step, or to the last of its batches, if
  // that is due (options().contributions_every); else empty. One contribution of all these towers,
  // under the number of the first, if they share variables and layers are synchronised.
  std::vector<TowerContribution> contributions() const;

  // What the ops of this process's towers computed in the last step, or for the last of its batches
  // and losses; null unless that is due (options().op_hashes_every).
  const OutputHashes* op_hashes() const { return op_hashes_.get(); }

  // What the last step has fetched for histograms (HistogramOptions), by names such as
  // "gradients/fc0/W" and "activations/conv0"; empty unless they are due.
  std::vector<NamedTensor> watched() const;
  // The norms of the combined gradients of the last step (TrainingStep::gradient_norms()), if
  // options().log_gradient_norms; else empty, as before the first step.
  std::vector<NamedValue> gradient_norms() const;

  // Training samples of all towers per second of training. The first step does not count; neither
  // do evaluations and other callbacks of epochs. 0 before the second step.
  double examples_per_second() const;
  // The same for the last step alone, even if it is the first; 0 before the first step.
  double step_examples_per_second() const { return step_examples_per_second_; }
  // Multiplications and additions per second of training by the towers of this process: twice
  // step_multiply_adds() (model_summary.h) per step. 0 before the second step.
  double flops_per_second() const;
  // The rates of the last step, from the schedules of optimizers; 0 before the first step:
  // "learning_rate", or "learning_rate/LOSS" of each of several losses, and after each those of its
  // groups of variables with another rate, with "/PATTERN" at the end.
  const std::vector<NamedValue>& learning_rates() const { return rates_; }
  // That of a loss, by its number, without its groups.
  double rate_of_loss(std::size_t loss) const { return rates_of_losses_[loss]; }

  // The losses of the steps so far, and likely causes of one that is not finite.
  const DivergenceWatch& watch() const { return watch_; }
  DivergenceWatch& watch() { return watch_; }

  // run_fingerprint() of this run. The first call computes it, and reads the data.
  const JsonValue& fingerprint() const;
  // The first file of the training data whose content has changed since fingerprint() read it; ""
  // for none. It reads files again only if the size or time of one has changed since the last call.
  std::string changed_data() const;

  // For the loop, which records with these: the rates of a step, its metrics, the compiled steps
  // that have its gradients, and its speed.
  void begin_step(const StepInfo& step);
  std::span<NamedValue> values_of_step() { return step_metrics_; }
  void note_runs(std::span<const TrainingStep> runs) { last_runs_ = runs; }
  void note_op_hashes(std::shared_ptr<const OutputHashes> hashes) {
    op_hashes_ = std::move(hashes);
  }
  void note_speed(double examples_per_second) { step_examples_per_second_ = examples_per_second; }
  // Counts a step for examples_per_second(), with its callbacks but for what they leave out.
  void add_time(double seconds, std::int64_t samples);
  // For callbacks that do in a step what is no training, such as an evaluation.
  void leave_out(double seconds) { left_out_seconds_ += seconds; }
  // What was left out before does not concern the next step.
  void begin_time() { left_out_seconds_ = 0; }
  // The metrics that were set since the last call.
  std::vector<NamedValue> take_new_metrics() { return std::exchange(new_metrics_, {}); }

 private:
  const NamedValue* find_metric(std::string_view name) const;

  BuiltTraining& built_;
  const TrainingProgress& progress_;
  std::vector<NamedValue> step_metrics_, other_metrics_;
  std::vector<NamedValue> new_metrics_;      // for the next after_metrics()
  std::span<const TrainingStep> last_runs_;  // of the last step, one per loss
  std::shared_ptr<const OutputHashes> op_hashes_;
  std::vector<NamedValue> rates_;
  std::vector<double> rates_of_losses_;
  double step_examples_per_second_ = 0;
  // The steps that count for examples_per_second(), with their samples and time.
  double timed_seconds_ = 0;
  std::int64_t timed_steps_ = 0, timed_samples_ = 0;
  double left_out_seconds_ = 0;  // since add_time()
  DivergenceWatch watch_;
  mutable std::optional<JsonValue> fingerprint_;
  mutable std::string data_stamp_;  // of the files that fingerprint_ was read from
};

}  // namespace belfry
