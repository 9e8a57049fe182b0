#include "belfry/trainers/bench_report.h"

#include <algorithm>
#include <cstdio>

#include "belfry/framework/error.h"

namespace belfry {
namespace {

std::string strategy_of(const Mode& mode) {
  return mode.allreduce.empty() ? mode.trainer : mode.allreduce;
}

}  // namespace

std::vector<BenchResult> bench_results(const BenchedModel& model, std::span<const ModeRuns> runs,
                                       std::size_t reference) {
  require(reference < runs.size(), "result ", reference, " of ", runs.size(), " as a reference");
  std::vector<BenchResult> results;
  for (const ModeRuns& run : runs) {
    const PairedRatio ratio = paired_ratio(run.speeds, runs[reference].speeds);
    const Speed speed = speed_of(double{1} * model.devices * model.batch_size, run.seconds);
    const double images = median(run.speeds);
    const Mode mode = run.chosen.value_or(run.mode);
    results.push_back({.model = model.name,
                       .strategy = strategy_of(run.mode),
                       .resolved = run.chosen ? mode.allreduce : "",
                       .bucket_mb = run.chosen ? mode.bucket_mb.value_or(0) : 0,
                       .canonical = mode.canonical(model.devices),
                       .devices = model.devices,
                       .batch_size = model.batch_size,
                       .images_per_second = images,
                       .images_per_second_per_device = images / model.devices,
                       .uncertainty = speed.uncertainty,
                       .jitter = speed.jitter,
                       .ratio = ratio.median,
                       .ratio_spread = ratio.spread,
                       .params_hash = run.params_hash,
                       .state_hash = run.state_hash});
  }
  return results;
}

Json to_json(const BenchResult& result) {
  Json json = Json::object();
  json.set("model", result.model).set("strategy", result.strategy);
  if (!result.resolved.empty())
    json.set("resolved", result.resolved).set("bucket_mb", result.bucket_mb);
  return json.set("canonical", result.canonical)
      .set("devices", result.devices)
      .set("batch_size", result.batch_size)
      .set("images_per_second", result.images_per_second)
      .set("images_per_second_per_device", result.images_per_second_per_device)
      .set("uncertainty", result.uncertainty)
      .set("jitter", result.jitter)
      .set("ratio", result.ratio)
      .set("ratio_spread", result.ratio_spread)
      .set("params_hash", result.params_hash)
      .set("state_hash", result.state_hash);
}

std::string bench_table(std::span<const BenchResult> results, std::span<const ModePlan> refused) {
  char line[240];
  std::snprintf(line, sizeof line, "%-24s %10s %10s %9s %8s %7s %18s  %-16s %s\n", "strategy",
                "images/s", "per device", "+/-", "jitter", "ratio", "difference", "params_hash",
                "canonical");
  std::string text = line;
  for (const BenchResult& result : results) {
    const std::string strategy = result.resolved.empty()
                                     ? result.strategy
                                     : cat(result.strategy, " (", result.resolved, ")");
    std::snprintf(
        line, sizeof line, "%-24s %10.2f %10.2f %9.2f %8.2f %7.3f %+8.1f %% +/- %4.1f  %-16s %s\n",
        strategy.c_str(), result.images_per_second, result.images_per_second_per_device,
        result.uncertainty, result.jitter, result.ratio, 100 * (result.ratio - 1),
        50 * result.ratio_spread, result.params_hash.c_str(), result.canonical ? "yes" : "no");
    text += line;
  }
  for (const ModePlan& plan : refused)
    text += cat(strategy_of(plan.mode), ": refused: ", plan.refusal, "\n");
  return text;
}

std::string bench_plot(const BenchedModel& model, std::span<const BenchResult> results) {
  std::vector<Bar> bars;
  for (const BenchResult& result : results)
    bars.push_back({.label = result.strategy,
                    .value = result.images_per_second,
                    .error = 2 * result.uncertainty});
  return bar_chart_svg({.title = cat(model.name, ", ", model.devices, " devices, batch ",
                                     model.batch_size, " per device"),
                        .unit = "images/s, all devices; bars: two standard errors"},
                       bars);
}

std::string disagreement(std::span<const BenchResult> results) {
  const auto first = std::ranges::find_if(results, &BenchResult::canonical);
  for (const BenchResult& other : results)
    if (other.canonical &&
        (other.params_hash != first->params_hash || other.state_hash != first->state_hash))
      return cat(first->strategy, " and ", other.strategy);
  return "";
}

}  // namespace belfry
