// What a trainer tells of its steps: metrics, gradients, plans, rates.
#include <algorithm>
#include <optional>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/trainers/core/model_summary.h"
#include "belfry/trainers/core/run_identity.h"
#include "belfry/trainers/core/trainer.h"

namespace belfry {

const NamedValue* Trainer::find_metric(std::string_view name) const {
  for (const auto* values : {&step_metrics_, &other_metrics_})
    for (const NamedValue& value : *values)
      if (value.name == name) return &value;
  return nullptr;
}

double Trainer::metric(std::string_view name) const {
  if (const NamedValue* found = find_metric(name)) return found->value;
  std::vector<std::string> names;
  for (const auto* values : {&step_metrics_, &other_metrics_})
    for (const NamedValue& value : *values) names.push_back(value.name);
  throw NotFoundError(cat("no metric '", name, "'; there are ", join(names)));
}

void Trainer::set_metric(std::string_view name, double value) {
  const auto put = [&](std::vector<NamedValue>& values) {
    const auto known = std::ranges::find(values, name, &NamedValue::name);
    if (known == values.end())
      values.push_back({std::string(name), value});
    else
      known->value = value;
  };
  require(std::ranges::find(step_metrics_, name, &NamedValue::name) == step_metrics_.end(),
          "metric '", name, "' is set by the model");
  put(other_metrics_);
  put(new_metrics_);
}

std::vector<std::string> Trainer::expected_metrics() const {
  std::vector<std::string> names;
  for (const NamedValue& metric : step_metrics_)
    names.push_back(test_ ? cat("validation_", metric.name) : metric.name);
  for (const std::shared_ptr<Callback>& callback : options_.callbacks)
    for (std::string& name : callback->metrics()) names.push_back(std::move(name));
  return names;
}

std::string Trainer::changed_data() const {
  if (!identity_) return "";
  std::string stamp = stamp_of_files(train_);
  if (stamp == data_stamp_) return "";
  data_stamp_ = std::move(stamp);
  return changed_file(train_, *identity_);
}

const Arithmetics& Trainer::arithmetics() const {
  if (!arithmetics_)
    arithmetics_ = arithmetics_of(options_.session.processes.get(), options_.devices);
  return *arithmetics_;
}

std::string Trainer::other_bits() const {
  if (arithmetics_ && !arithmetics_->mixed.empty()) return arithmetics_->mixed;
  return earlier_bits_.empty() ? "" : cat("this run was resumed with other bits: ", earlier_bits_);
}

std::vector<NamedTensor> Trainer::gradients() const {
  return last_step_ ? last_step_->gradients() : std::vector<NamedTensor>();
}

void Trainer::resume_metrics(const std::vector<NamedValue>& values) {
  for (const NamedValue& value : values) {
    const auto known = std::ranges::find(step_metrics_, value.name, &NamedValue::name);
    if (known != step_metrics_.end())
      known->value = value.value;
    else
      set_metric(value.name, value.value);
  }
}

std::optional<KeptChoice> Trainer::kept_choice() const {
  if (choice_.empty()) return {};
  return KeptChoice{.allreduce = options_.aggregation.allreduce,
                    .bucket_mb = options_.aggregation.bucket_mb,
                    .gradient_repacking = options_.aggregation.gradient_repacking,
                    .small_tensors_kb = options_.aggregation.small_tensors_kb,
                    .devices = options_.devices,
                    .from = "an earlier run"};
}

std::optional<LossScaleState> Trainer::loss_scale() {
  const LossScale& state = built_.loss_scale;
  if (!state) return {};
  return LossScaleState{.scale = session_->read(state.scale).item<float>(),
                        .skipped_steps = session_->read(state.skipped_steps).item<std::int64_t>()};
}

std::vector<std::shared_ptr<const Plan>> Trainer::plans() const { return training_steps_.plans(); }

std::int64_t Trainer::bytes_moved() const {
  std::int64_t sum = 0;
  for (const auto& [plan, runs] : plans_of_step())
    for (const TransferRecord& transfer : plan->transfers) sum += runs * transfer.bytes;
  return sum;
}

std::vector<PlanOfStep> Trainer::plans_of_step() const {
  return training_steps_.plans_with_runs(batches_.batches_per_step());
}

double Trainer::flops_per_second() const {
  if (timed_.steps == 0) return 0;
  const double flops = 2 * step_multiply_adds(built_, batches_.batches_per_step());
  return flops * static_cast<double>(timed_.steps) / timed_.seconds;
}

double Trainer::examples_per_second() const {
  if (timed_.steps == 0) return 0;
  return static_cast<double>(timed_.samples) / timed_.seconds;
}

}  // namespace belfry
