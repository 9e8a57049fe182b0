#include "belfry/trainers/core/training_record.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <typeinfo>
#include <utility>

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/built_training.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/data_identity.h"
#include "belfry/trainers/core/model_summary.h"
#include "belfry/trainers/core/run_fingerprint.h"
#include "belfry/trainers/core/training_progress.h"
#include "belfry/trainers/data/prefetch.h"

namespace belfry {
namespace {

// Lines about steps have these members beside metrics (stats.jsonl), so no metric may.
void check_metric_name(std::string_view name) {
  for (const std::string_view taken : {"loss", "step", "epoch", "seconds", "learning_rate",
                                       "examples_per_second", "gradient_norm"})
    require(name != taken, "a metric is called '", taken,
            "', as a number of each step is; give it another name");
}

bool has_own_rate(const VariableGroup& group) { return group.rate != 1 && !group.freeze; }

// TrainingRecord::learning_rates() before the first step.
std::vector<NamedValue> named_rates(std::span<const TrainedLoss> losses) {
  std::vector<NamedValue> rates;
  for (const TrainedLoss& loss : losses) {
    const std::string name = cat("learning_rate", loss.name.empty() ? "" : "/", loss.name);
    rates.push_back({name});
    for (const VariableGroup& group : loss.optimizer.groups())
      if (has_own_rate(group)) rates.push_back({cat(name, "/", group.pattern)});
  }
  return rates;
}

}  // namespace

TrainingRecord::TrainingRecord(BuiltTraining& built, const TrainingProgress& progress)
    : built_(built),
      progress_(progress),
      step_metrics_(no_values(MetricNumbers(built.nodes().towers[0]))),
      rates_(named_rates(built.nodes().losses)),
      rates_of_losses_(built.nodes().losses.size()),
      watch_(built, progress) {
  for (const NamedValue& metric : std::span(step_metrics_).subspan(1))
    check_metric_name(metric.name);
}

const NamedValue* TrainingRecord::find_metric(std::string_view name) const {
  for (const auto* values : {&step_metrics_, &other_metrics_})
    for (const NamedValue& value : *values)
      if (value.name == name) return &value;
  return nullptr;
}

double TrainingRecord::metric(std::string_view name) const {
  if (const NamedValue* found = find_metric(name)) return found->value;
  std::vector<std::string> names;
  for (const auto* values : {&step_metrics_, &other_metrics_})
    for (const NamedValue& value : *values) names.push_back(value.name);
  throw NotFoundError(cat("no metric '", name, "'; there are ", join(names)));
}

void TrainingRecord::set_metric(std::string_view name, double value) {
  const auto put = [&](std::vector<NamedValue>& values) {
    const auto known = std::ranges::find(values, name, &NamedValue::name);
    if (known == values.end())
      values.push_back({std::string(name), value});
    else
      known->value = value;
  };
  require(std::ranges::find(step_metrics_, name, &NamedValue::name) == step_metrics_.end(),
          "metric '", name, "' is set by the model");
  check_metric_name(name);
  put(other_metrics_);
  put(new_metrics_);
}

void TrainingRecord::resume_metrics(const std::vector<NamedValue>& values) {
  for (const NamedValue& value : values) {
    const auto known = std::ranges::find(step_metrics_, value.name, &NamedValue::name);
    if (known != step_metrics_.end())
      known->value = value.value;
    else
      set_metric(value.name, value.value);
  }
}

std::vector<std::string> TrainingRecord::expected_metrics() const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& prefix) {
    for (const NamedValue& metric : step_metrics_) names.push_back(prefix + metric.name);
  };
  if (built_.test_data()) add("validation_");
  for (const ValidationSet& set : built_.options().validation)
    add(cat("validation_", set.name, "_"));
  if (!built_.evaluates()) add("");
  for (const std::shared_ptr<Callback>& callback : built_.options().callbacks)
    naming_part(cat("the callback ", class_name(typeid(*callback)), "::metrics"), [&] {
      for (std::string& name : callback->metrics()) names.push_back(std::move(name));
    });
  return names;
}

void TrainingRecord::begin_step(const StepInfo& step) {
  auto next = rates_.begin();
  for (std::size_t l = 0; l < rates_of_losses_.size(); ++l) {
    const TrainedLoss& loss = built_.nodes().losses[l];
    const double rate = rates_of_losses_[l] = loss.optimizer.rate().at(step);
    next++->value = rate;
    for (const VariableGroup& group : loss.optimizer.groups())
      if (has_own_rate(group)) next++->value = rate * group.rate;
  }
}

std::vector<NamedTensor> TrainingRecord::gradients() const {
  std::vector<NamedTensor> all;
  for (const TrainingStep& run : last_runs_)
    for (NamedTensor& gradient : run.gradients()) all.push_back(std::move(gradient));
  return all;
}

std::vector<TowerContribution> TrainingRecord::contributions() const {
  std::vector<TowerContribution> all;
  for (const TrainingStep& run : last_runs_) {
    std::vector<std::vector<NamedTensor>> rows = run.contributions();
    all.resize(std::max(all.size(), rows.size()));
    for (std::size_t t = 0; t < rows.size(); ++t) {
      all[t].tower = built_.own_towers().first + static_cast<std::int64_t>(t);
      for (NamedTensor& gradient : rows[t]) all[t].gradients.push_back(std::move(gradient));
    }
  }
  return all;
}

std::vector<NamedTensor> TrainingRecord::watched() const {
  std::vector<NamedTensor> all;
  for (const TrainingStep& run : last_runs_)
    for (NamedTensor& tensor : run.watched()) all.push_back(std::move(tensor));
  return all;
}

std::vector<NamedValue> TrainingRecord::gradient_norms() const {
  std::vector<NamedValue> all;
  for (const TrainingStep& run : last_runs_) {
    const std::vector<NamedValue> of_run = run.gradient_norms();
    if (all.empty() || of_run.empty()) {
      all.insert(all.end(), of_run.begin(), of_run.end());
      continue;
    }
    all[0].value = std::hypot(all[0].value, of_run[0].value);
    all.insert(all.end(), of_run.begin() + 1, of_run.end());
  }
  return all;
}

double TrainingRecord::examples_per_second() const {
  return timed_steps_ == 0 ? 0 : static_cast<double>(timed_samples_) / timed_seconds_;
}

double TrainingRecord::flops_per_second() const {
  if (timed_steps_ == 0) return 0;
  const double flops = 2 * mean_step_multiply_adds(built_);
  return flops * static_cast<double>(timed_steps_) / timed_seconds_;
}

void TrainingRecord::add_time(double seconds, std::int64_t samples) {
  timed_seconds_ += seconds - left_out_seconds_;
  ++timed_steps_;
  timed_samples_ += samples;
}

const JsonValue& TrainingRecord::fingerprint() const {
  if (fingerprint_) return *fingerprint_;
  data_stamp_ = stamp_of_files(built_.train_data());  // what is written from now on is a change
  return fingerprint_.emplace(run_fingerprint(built_, progress_));
}

std::string TrainingRecord::changed_data() const {
  if (!fingerprint_) return "";
  std::string stamp = stamp_of_files(built_.train_data());
  if (stamp == data_stamp_) return "";
  data_stamp_ = std::move(stamp);
  return changed_file(built_.train_data(), *fingerprint_);
}

}  // namespace belfry
