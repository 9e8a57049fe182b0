#include "bench_report.h"

#include <algorithm>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/util/gnuplot_text.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

std::string strategy_of(const Mode& mode) {
  return mode.allreduce.empty() ? mode.trainer : mode.allreduce;
}

std::string name_of(const BenchResult& result) {
  return result.resolved.empty() ? result.strategy
                                 : cat(result.strategy, " (", result.resolved, ")");
}

std::string table_row(const std::string& strategy, const std::string& images,
                      const std::string& per_device, const std::string& uncertainty,
                      const std::string& jitter, const std::string& ratio,
                      const std::string& difference, const std::string& hash,
                      std::string_view canonical) {
  return cat(padded(strategy, -24), " ", padded(images, 10), " ", padded(per_device, 10), " ",
             padded(uncertainty, 9), " ", padded(jitter, 8), " ", padded(ratio, 7), " ",
             padded(difference, 19), "  ", padded(hash, -16), " ", canonical, "\n");
}

}  // namespace

std::optional<double> BenchResult::tokens_per_second() const {
  if (model.tokens == 0) return std::nullopt;
  return images_per_second * static_cast<double>(model.tokens);
}

std::vector<BenchResult> bench_results(const BenchedModel& model, std::span<const ModeRuns> runs,
                                       std::size_t reference) {
  require(reference < runs.size(), "result ", reference, " of ", runs.size(), " as a reference");
  std::vector<BenchResult> results;
  for (const ModeRuns& run : runs) {
    const PairedRatio ratio = paired_ratio(run.speeds, runs[reference].speeds);
    const double images_per_step =
        double{1} * model.towers() * model.batch_size * model.settings.gradient_accumulation_steps;
    const Speed speed = speed_of(images_per_step, run.seconds);
    const double images = median(run.speeds);
    const double steps = images / images_per_step;  // a second
    const Mode mode = run.chosen.value_or(run.mode);
    results.push_back(
        {.model = model,
         .strategy = strategy_of(run.mode),
         .resolved = run.chosen ? mode.allreduce : "",
         .bucket_mb = run.chosen ? mode.bucket_mb.value_or(0) : 0,
         .canonical = mode.canonical(model.devices),
         .shards = run.shards,
         .k_dependent_because = run.k_dependent_because,
         .loss_scale = run.loss_scale,
         .skipped_steps = run.skipped_steps,
         .divergence = run.divergence,
         .images_per_second = images,
         .mfu = model.peak ? std::optional(steps * run.step_flops / *model.peak) : std::nullopt,
         .uncertainty = speed.uncertainty,
         .jitter = speed.jitter,
         .ratio = ratio.median,
         .ratio_spread = ratio.spread,
         .startup_seconds = run.startup_seconds,
         .memory = run.memory,
         .params_hash = run.params_hash,
         .state_hash = run.state_hash});
  }
  return results;
}

JsonValue to_json(const BenchResult& result) {
  const BenchedModel& model = result.model;
  JsonValue json = JsonValue::object();
  json.set("model", model.name).set("strategy", result.strategy);
  if (!result.resolved.empty())
    json.set("resolved", result.resolved).set("bucket_mb", result.bucket_mb);
  json.set("canonical", result.canonical)
      .set("devices", model.towers())
      .set("processes", std::max<std::int64_t>(1, std::ssize(model.hosts)))
      .set("hosts", JsonValue::array(model.hosts))
      .set("batch_size", model.batch_size)
      .set("global_batch_size", model.batch_size * model.towers())
      .set("shards", result.shards);
  add_k_dependence(json, result.k_dependent_because);
  if (!model.tower_weights.empty())
    json.set("tower_weights", JsonValue::array(model.tower_weights));
  set_settings(json, model.settings);
  json.set("label_smoothing", model.label_smoothing)
      .set("batch_norm", model.batch_norm.empty() ? JsonValue() : JsonValue(model.batch_norm));
  if (result.loss_scale)
    json.set("loss_scale", *result.loss_scale).set("skipped_steps", result.skipped_steps);
  const auto& since = result.divergence.loss_since;
  const std::string& variable = result.divergence.variable;
  json.set("first_nonfinite_step", since ? JsonValue(*since) : JsonValue())
      .set("nonfinite_variable", variable.empty() ? JsonValue() : JsonValue(variable));
  set_speed(json, {.examples_per_second = result.images_per_second,
                   .tokens_per_second = result.tokens_per_second(),
                   .mfu = result.mfu,
                   .communication_hidden_share = result.communication_hidden_share});
  json.set("examples_per_second_per_device", result.images_per_second_per_device())
      .set("uncertainty", result.uncertainty)
      .set("jitter", result.jitter)
      .set("ratio", result.ratio)
      .set("ratio_spread", result.ratio_spread)
      .set("startup_seconds", result.startup_seconds)
      .set("params_hash", result.params_hash)
      .set("state_hash", result.state_hash);
  set_memory(json, result.memory);
  return json;
}

std::string bench_table(std::span<const BenchResult> results, std::span<const ModePlan> refused) {
  std::string text = table_row("strategy", "images/s", "per device", "+/-", "jitter", "ratio",
                               "difference", "params_hash", "canonical");
  for (const BenchResult& result : results) {
    const double percent = 100 * (result.ratio - 1);
    const std::string difference = cat(percent < 0 ? "" : "+", rounded(percent, 1), " % +/- ",
                                       padded(rounded(50 * result.ratio_spread, 1), 4));
    text +=
        table_row(name_of(result), rounded(result.images_per_second, 2),
                  rounded(result.images_per_second_per_device(), 2), rounded(result.uncertainty, 2),
                  rounded(result.jitter, 2), rounded(result.ratio, 3), difference,
                  result.params_hash, result.canonical ? "yes" : "no");
  }
  for (const ModePlan& plan : refused)
    text += cat(strategy_of(plan.mode), ": refused: ", plan.refusal, "\n");
  return text;
}

std::string bench_plot(const BenchedModel& model, std::span<const BenchResult> results) {
  std::string rows;  // name, value, error, text, colour
  for (const BenchResult& result : results)
    rows += cat(name_of(result), "\t", result.images_per_second, "\t", 2 * result.uncertainty, "\t",
                rounded(result.images_per_second, result.images_per_second < 100 ? 2 : 0), "\t",
                result.canonical ? 1 : 2, "\n");
  const std::string title =
      cat(model.name, ", ", model.devices.size(), " devices, batch ", model.batch_size,
          " per device", model.tower_weights.empty() ? "" : " on average");
  return cat(gnuplot_data("$bars", rows), "set datafile separator tab\nset title ",
             gnuplot_string(title), R"(
set xlabel 'images/s, all devices; error bars: two standard errors' offset 0,0.6
set format x '%.12g'
set xrange [0:*]
set yrange [*:*] reverse
set offsets 0, graph 0.12, 0.6, 0.6
set grid x
set style fill solid 0.8
set key outside bottom center horizontal
set linetype 1 linecolor rgb '#4878a8'
set linetype 2 linecolor rgb '#b0b0b0'
plot $bars using 2:0:(0):2:($0-0.35):($0+0.35):5:ytic(1) with boxxyerror linecolor variable notitle, \
     $bars using 2:0:3 with xerrorbars linecolor 'black' pointtype 0 notitle, \
     $bars using ($2+$3):0:4 with labels left offset 1,0 notitle, \
     NaN with boxes linetype 1 title 'canonical: the same bits', \
     NaN with boxes linetype 2 title 'other bits'
)");
}

std::string divergence(std::span<const BenchResult> results) {
  std::vector<std::string> texts;
  for (const BenchResult& result : results)
    if (result.divergence)
      texts.push_back(
          cat(result.strategy, ": ", result.divergence, "; ", result.divergence.advice));
  return join(texts, "; ");
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
