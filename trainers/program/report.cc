#include "belfry/trainers/program/report.h"

#include <algorithm>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/numeric_order.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

std::string row(std::string name, const std::string& value) {
  constexpr std::size_t kColumn = 20;
  name.resize(std::max(kColumn, name.size() + (name.size() < kColumn ? 0 : 2)), ' ');
  return cat("  ", name, value, "\n");
}

std::string value_text(const NamedValue& metric) {
  return metric.name.ends_with("accuracy") ? rounded(100 * metric.value, 2) + " %"
                                           : significant(metric.value);
}

// Values of training and validation side by side. Below them are those of an evaluation alone.
std::string metric_rows(const std::vector<NamedValue>& metrics) {
  constexpr std::size_t kColumn = 14;
  constexpr std::string_view kValidation = "validation_";
  const auto find = [&](const std::string& name) {
    return std::ranges::find(metrics, name, &NamedValue::name);
  };
  const auto validated = [&](const NamedValue& metric) {
    return find(cat(kValidation, metric.name));
  };
  std::string rows, others;
  bool has_both = false;
  for (const NamedValue& metric : metrics) {
    const bool is_validation = metric.name.starts_with(kValidation);
    if (is_validation && find(metric.name.substr(kValidation.size())) != metrics.end()) continue;
    std::string value = value_text(metric);
    if (const auto other = validated(metric); other != metrics.end()) {
      has_both = true;
      value.resize(std::max(kColumn, value.size() + 2), ' ');
      value += value_text(*other);
    }
    (is_validation ? others : rows) += row(metric.name, value);
  }
  std::string head = "training";
  head.resize(kColumn, ' ');
  return (has_both ? row("", head + "validation") : "") + rows + others;
}

JsonValue or_null(const std::string& text) { return text.empty() ? JsonValue() : JsonValue(text); }

template <class T>
JsonValue or_null(const std::optional<T>& value) {
  return value ? JsonValue(*value) : JsonValue();
}

}  // namespace

void Report::Update::add_to(JsonValue& json) const {
  json.set("allreduce_requested", or_null(allreduce_requested))
      .set("canonical", or_null(canonical))
      .set("optimizer", or_null(optimizer))
      .set("optimizer_options", optimizer_options)
      .set("learning_rate", or_null(learning_rate))
      .set("weight_decay", weight_decay)
      .set("group", or_null(groups));
  if (!losses.items().empty()) json.set("losses", losses);
}

void Report::Batches::add_to(JsonValue& json) const {
  json.set("global_batch_size", global_batch_size);
  if (k_dependent_because)
    add_k_dependence(json, *k_dependent_because);
  else
    json.set("k_independent", JsonValue()).set("k_dependent_because", JsonValue());
  json.set("metrics_depend_on_devices",
           device_metrics ? JsonValue::array(*device_metrics) : JsonValue());
}

void Report::Progress::add_to(JsonValue& json) const {
  json.set("steps", steps)
      .set("epochs", epochs)
      .set("startup_seconds", startup_seconds)
      .set("seconds", seconds);
  set_speed(json, speed);
}

void Report::Losses::add_to(JsonValue& json) const {
  JsonValue by_name = JsonValue::object();
  for (const auto& [name, value] : metrics) by_name.set(name, value);
  json.set("loss", or_null(loss))
      .set("first_nonfinite_step", or_null(divergence.loss_since))
      .set("nonfinite_variable", or_null(divergence.variable))
      .set("validation_loss", or_null(validation_loss));
  if (has_accuracy) json.set("validation_accuracy", or_null(validation_accuracy));
  json.set("metrics", std::move(by_name));
}

void Report::Losses::add_scale_to(JsonValue& json) const {
  json.set("loss_scale", or_null(scale)).set("skipped_steps", or_null(skipped));
}

void Report::Variables::add_to(JsonValue& json) const {
  json.set("params_hash", or_null(params_hash))
      .set("state_hash", or_null(state_hash))
      .set("replicas_equal", or_null(replicas_equal))
      .set("replicas_shared", or_null(replicas_shared));
}

JsonValue to_json(const Report& report) {
  JsonValue devices = JsonValue::array(), peaks = JsonValue::object();
  for (const DeviceSpec& device : report.devices) devices.push(device.str());
  for (const auto& [device, bytes] : in_numeric_order(report.peak_bytes)) peaks.set(device, bytes);
  JsonValue json = JsonValue::object();
  json.set("program", report.program)
      .set("flags", report.flags)
      .set("devices", std::move(devices))
      .set("processes", std::max<std::int64_t>(1, std::ssize(report.hosts)))
      .set("hosts", JsonValue::array(report.hosts));
  for (const auto& [name, value] : report.options.members()) json.set(name, value);
  report.update.add_to(json);
  report.batches.add_to(json);
  json.set("bad_records", report.left_out);
  report.losses.add_scale_to(json);
  json.set("threads", report.threads);
  report.progress.add_to(json);
  report.losses.add_to(json);
  report.variables.add_to(json);
  json.set("peak_bytes", std::move(peaks));
  set_memory(json, report.memory);
  json.set("restart", report.restart);
  return json;
}

std::string to_table(const Report& report) {
  std::string table = "\n";
  table += row("steps", cat(report.progress.steps));
  table += row("epochs", cat(report.progress.epochs));
  table += row("seconds", rounded(report.progress.seconds, 2));
  table += row("examples/s", rounded(report.progress.speed.examples_per_second, 0));
  if (const std::optional<double> tokens = report.progress.speed.tokens_per_second)
    table += row("tokens/s", rounded(*tokens, 0));
  if (const std::optional<double> mfu = report.progress.speed.mfu)
    table += row("share of peak", rounded(100 * *mfu, 1) + " %");
  if (const std::optional<double> share = report.progress.speed.communication_hidden_share)
    table += row("messages hidden", rounded(100 * *share, 1) + " %");
  table += metric_rows(report.losses.metrics);
  if (report.left_out > 0) table += row("left out", bad_records_text(report.left_out));
  if (report.losses.scale) table += row("loss scale", significant(*report.losses.scale));
  if (report.losses.skipped) table += row("skipped", cat(*report.losses.skipped, " steps"));
  if (const std::optional<bool> canonical = report.update.canonical)
    table += row("canonical", *canonical ? "yes" : "no");
  table += row("params_hash", report.variables.params_hash);
  table += row("replicas_equal", report.variables.replicas_equal.value_or(false) ? "yes" : "NO");
  table += row("replicas_shared", cat(report.variables.replicas_shared.value_or(0)));
  for (const auto& [device, bytes] : in_numeric_order(report.peak_bytes))
    table += row("peak " + DeviceSpec(device).short_str(),
                 cat(rounded(static_cast<double>(bytes) / (1 << 20), 2), " MiB"));
  return table;
}

}  // namespace belfry
