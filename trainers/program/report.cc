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
  name.resize(20, ' ');
  return cat("  ", name, value, "\n");
}

}  // namespace

Json to_json(const Report& report) {
  Json devices = Json::array();
  for (const DeviceSpec& device : report.devices) devices.push(device.str());
  Json hosts = Json::array();
  for (const std::string& host : report.hosts) hosts.push(host);
  Json peaks = Json::object();
  for (const auto& [device, bytes] : in_numeric_order(report.peak_bytes)) peaks.set(device, bytes);
  Json weights = Json::array();
  for (const double weight : report.batches.tower_weights) weights.push(weight);
  const auto& since = report.losses.divergence.loss_since;
  const std::string& variable = report.losses.divergence.variable;
  Json flags = Json::object();
  for (const auto& [name, value] : report.flags)
    flags.set(name, std::visit([](const auto& held) { return Json(held); }, value));
  const Json accuracy =
      report.losses.validation_accuracy ? Json(*report.losses.validation_accuracy) : Json();
  Json json = Json::object();
  json.set("program", report.program)
      .set("flags", std::move(flags))
      .set("devices", std::move(devices))
      .set("processes", std::max<std::int64_t>(1, std::ssize(report.hosts)))
      .set("hosts", std::move(hosts))
      .set("trainer", report.update.trainer)
      .set("allreduce", report.update.allreduce.empty() ? Json() : Json(report.update.allreduce))
      .set("allreduce_requested", report.update.allreduce_requested.empty()
                                      ? Json()
                                      : Json(report.update.allreduce_requested))
      .set("gradient_repacking", report.update.gradient_repacking)
      .set("small_tensors_kb", report.update.small_tensors_kb)
      .set("partition_updates", report.update.partition_updates)
      .set("share_replicas", report.update.share_replicas)
      .set("canonical", report.update.canonical)
      .set("bucket_mb", report.update.bucket_mb)
      .set("learning_rate", report.update.learning_rate)
      .set("async", report.update.async.empty() ? Json() : Json(report.update.async));
  set_settings(json, report.settings);
  json.set("batch_size", report.batches.batch_size)
      .set("global_batch_size", report.batches.global_batch_size)
      .set("shards", report.batches.shards);
  add_k_dependence(json, report.batches.k_dependent_because);
  json.set("uneven", report.batches.uneven)
      .set("tower_weights", report.batches.tower_weights.empty() ? Json() : std::move(weights))
      .set("seed", report.batches.seed)
      .set("bad_records", report.left_out.records)
      .set("lost_rests", Json::array(report.left_out.rests))
      .set("loss_scale", report.losses.scale ? Json(report.losses.scale->scale) : Json())
      .set("skipped_steps", report.losses.scale ? Json(report.losses.scale->skipped_steps) : Json())
      .set("threads", report.threads)
      .set("steps", report.progress.steps)
      .set("epochs", report.progress.epochs)
      .set("startup_seconds", report.progress.startup_seconds)
      .set("seconds", report.progress.seconds);
  set_speed(json, report.progress.speed);
  json.set("loss", report.losses.loss ? Json(*report.losses.loss) : Json())
      .set("first_nonfinite_step", since ? Json(*since) : Json())
      .set("nonfinite_variable", variable.empty() ? Json() : Json(variable))
      .set("validation_loss",
           report.losses.validation_loss ? Json(*report.losses.validation_loss) : Json())
      .set("validation_accuracy", accuracy)
      .set("test_accuracy", accuracy)
      .set("params_hash", report.variables.params_hash)
      .set("state_hash", report.variables.state_hash)
      .set("replicas_equal", report.variables.replicas_equal)
      .set("replicas_shared", report.variables.replicas_shared)
      .set("peak_bytes", std::move(peaks));
  set_memory(json, report.memory);
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
  if (report.losses.loss) table += row("loss", significant(*report.losses.loss));
  if (report.losses.validation_accuracy)
    table +=
        row("validation accuracy", rounded(100 * *report.losses.validation_accuracy, 2) + " %");
  if (report.left_out.records > 0) table += row("left out", report.left_out.str());
  if (report.losses.scale)
    table += row("loss scale", cat(significant(report.losses.scale->scale), ", ",
                                   report.losses.scale->skipped_steps, " steps skipped"));
  table += row("canonical", report.update.canonical ? "yes" : "no");
  table += row("params_hash", report.variables.params_hash);
  table += row("replicas_equal", report.variables.replicas_equal ? "yes" : "NO");
  table += row("replicas_shared", cat(report.variables.replicas_shared));
  for (const auto& [device, bytes] : in_numeric_order(report.peak_bytes))
    table += row("peak " + DeviceSpec(device).short_str(),
                 cat(rounded(static_cast<double>(bytes) / (1 << 20), 2), " MiB"));
  return table;
}

}  // namespace belfry
