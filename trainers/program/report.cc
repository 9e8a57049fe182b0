#include "belfry/trainers/program/report.h"

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/numeric_order.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

std::string row(std::string name, const std::string& value) {
  name.resize(18, ' ');
  return cat("  ", name, value, "\n");
}

}  // namespace

std::string to_json(const Report& report) {
  Json devices = Json::array();
  for (const DeviceSpec& device : report.devices) devices.push(device.str());
  Json peaks = Json::object();
  for (const auto& [device, bytes] : in_numeric_order(report.peak_bytes)) peaks.set(device, bytes);
  Json weights = Json::array();
  for (const double weight : report.tower_weights) weights.push(weight);
  const auto& since = report.divergence.loss_since;
  const std::string& variable = report.divergence.variable;
  Json json = Json::object();
  json.set("program", report.program)
      .set("devices", std::move(devices))
      .set("trainer", report.trainer)
      .set("allreduce", report.allreduce.empty() ? Json() : Json(report.allreduce))
      .set("allreduce_requested",
           report.allreduce_requested.empty() ? Json() : Json(report.allreduce_requested))
      .set("gradient_repacking", report.gradient_repacking)
      .set("small_tensors_kb", report.small_tensors_kb)
      .set("fuse_updates", report.fuse_updates)
      .set("share_replicas", report.share_replicas)
      .set("deterministic", report.deterministic)
      .set("canonical", report.canonical)
      .set("bucket_mb", report.bucket_mb)
      .set("async", report.async.empty() ? Json() : Json(report.async))
      .set("batch_size", report.batch_size)
      .set("uneven", report.uneven)
      .set("tower_weights", report.tower_weights.empty() ? Json() : std::move(weights))
      .set("seed", report.seed)
      .set("precision", report.precision)
      .set("loss_scale", report.loss_scale ? Json(report.loss_scale->scale) : Json())
      .set("skipped_steps", report.loss_scale ? Json(report.loss_scale->skipped_steps) : Json())
      .set("threads", report.threads)
      .set("steps", report.steps)
      .set("epochs", report.epochs)
      .set("seconds", report.seconds)
      .set("examples_per_second", report.examples_per_second)
      .set("loss", report.loss ? Json(*report.loss) : Json())
      .set("first_nonfinite_step", since ? Json(*since) : Json())
      .set("nonfinite_variable", variable.empty() ? Json() : Json(variable))
      .set("test_loss", report.test_loss ? Json(*report.test_loss) : Json())
      .set("test_accuracy", report.test_accuracy ? Json(*report.test_accuracy) : Json())
      .set("params_hash", report.params_hash)
      .set("state_hash", report.state_hash)
      .set("replicas_equal", report.replicas_equal)
      .set("replicas_shared", report.replicas_shared)
      .set("peak_bytes", std::move(peaks));
  return json.str(2) + "\n";
}

std::string to_table(const Report& report) {
  std::string table = "\n";
  table += row("steps", cat(report.steps));
  table += row("epochs", cat(report.epochs));
  table += row("seconds", rounded(report.seconds, 2));
  table += row("examples/s", rounded(report.examples_per_second, 0));
  if (report.loss) table += row("loss", significant(*report.loss));
  if (report.test_accuracy)
    table += row("test accuracy", rounded(100 * *report.test_accuracy, 2) + " %");
  if (report.loss_scale)
    table += row("loss scale", cat(significant(report.loss_scale->scale), ", ",
                                   report.loss_scale->skipped_steps, " steps skipped"));
  table += row("canonical", report.canonical ? "yes" : "no");
  table += row("params_hash", report.params_hash);
  table += row("replicas_equal", report.replicas_equal ? "yes" : "NO");
  table += row("replicas_shared", cat(report.replicas_shared));
  for (const auto& [device, bytes] : in_numeric_order(report.peak_bytes))
    table += row("peak " + DeviceSpec(device).short_str(),
                 cat(rounded(static_cast<double>(bytes) / (1 << 20), 2), " MiB"));
  return table;
}

}  // namespace belfry
