#include "belfry/trainers/commands/simulation_report.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/framework/plan/plan_graph.h"
#include "belfry/trainers/util/gnuplot_text.h"

namespace belfry {
namespace {

constexpr double kMilli = 1e3, kPercent = 100;

std::string decimals(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}
std::string percent(double share) { return decimals(kPercent * share, 1) + " %"; }
std::string in_milliseconds(double seconds) { return decimals(kMilli * seconds, 3) + " ms"; }

// Columns with two spaces between them, aligned to the right.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += std::string(widths[i] - row[i].size() + (i > 0 ? 2 : 0), ' ') + row[i];
    text += line + "\n";
  }
  return text;
}

std::string memory_text(const SimulationReport& report, const SimulatedStep& step) {
  const bool fits =
      report.cluster.memory_bytes == 0 || step.device_bytes <= report.cluster.memory_bytes;
  return decimals(step.device_bytes * 1e-9, 2) + (fits ? " GB" : " GB (too much)");
}

std::string interval_text(double seconds) { return decimals(seconds, 0) + " s"; }

std::string goodput_text(const SimulationReport& report) {
  const DeviceFaults& faults = report.faults;
  std::vector<std::vector<std::string>> rows = {
      {"devices", "fault every", "Young", "best interval", "goodput"}};
  for (const double interval : faults.intervals)
    rows[0].push_back(cat("saving every ", interval_text(interval)));
  for (const SimulatedStep& step : report.steps) {
    const FaultCosts costs = faults.of(step.devices);
    const double best = daly_interval(costs);
    rows.push_back({cat(step.devices), decimals(costs.between / 3600, 2) + " h",
                    interval_text(young_interval(costs)), interval_text(best),
                    percent(goodput(costs, best))});
    for (const double interval : faults.intervals)
      rows.back().push_back(percent(goodput(costs, interval)));
  }
  return aligned_table(rows);
}

JsonValue goodput_json(const DeviceFaults& faults, int devices) {
  const FaultCosts costs = faults.of(devices);
  const double best = daly_interval(costs);
  JsonValue intervals = JsonValue::array();
  for (const double interval : faults.intervals)
    intervals.push(
        JsonValue::object().set("save_every_s", interval).set("goodput", goodput(costs, interval)));
  return JsonValue::object()
      .set("fault_every_s", costs.between)
      .set("young_interval_s", young_interval(costs))
      .set("best_interval_s", best)
      .set("best_goodput", goodput(costs, best))
      .set("intervals", std::move(intervals));
}

// The critical pieces of a runner, the longest first.
std::vector<const StepPiece*> critical_pieces(const SimulatedStep& step, StepRunner runner) {
  std::vector<const StepPiece*> pieces;
  for (const StepPiece& piece : step.pieces)
    if (piece.critical && piece.runner == runner) pieces.push_back(&piece);
  std::ranges::stable_sort(pieces, std::greater(),
                           [](const StepPiece* piece) { return piece->ends - piece->begins; });
  return pieces;
}

const char* words_for(StepRunner runner) {
  switch (runner) {
    case StepRunner::kInput: return "waits for hosts that prepare samples";
    case StepRunner::kFeed: return "waits for samples on their way to devices";
    case StepRunner::kHost: return "waits for hosts that launch kernels";
    case StepRunner::kCompute: return "computes";
    case StepRunner::kLink: return "waits for sums of gradients";
  }
  return "";
}

}  // namespace

double SimulationReport::efficiency(const SimulatedStep& step) const {
  const SimulatedStep& first = steps.front();
  return step.samples_per_second / step.devices / (first.samples_per_second / first.devices);
}

std::string to_text(const SimulationReport& report) {
  std::vector<std::vector<std::string>> rows = {{"devices", "hosts", "step",
                                                 report.work.sample + "s/s", "efficiency", "hidden",
                                                 "bound by", "memory of a device"}};
  for (const SimulatedStep& step : report.steps)
    rows.push_back({cat(step.devices), cat(step.hosts), in_milliseconds(step.seconds),
                    decimals(step.samples_per_second, 1), percent(report.efficiency(step)),
                    step.sums > 0 ? percent(step.hidden_share()) : "-", name_of(step.bound_by()),
                    memory_text(report, step)});
  const std::int64_t samples = std::int64_t{report.training.batch} * report.training.accumulation;
  std::string text =
      cat(report.work.name, " on ", report.cluster.name, ", ", samples, " ", report.work.sample,
          samples == 1 ? "" : "s", " per device and step\n", aligned_table(rows));
  if (report.faults.between > 0) text += "\n" + goodput_text(report);
  return text;
}

JsonValue to_json(const SimulationReport& report) {
  JsonValue rows = JsonValue::array();
  for (const SimulatedStep& step : report.steps) {
    JsonValue critical = JsonValue::object();
    for (int runner = 0; runner < kStepRunners; ++runner)
      critical.set(name_of(static_cast<StepRunner>(runner)), step.critical[at(runner)]);
    JsonValue row = JsonValue::object();
    row.set("devices", step.devices)
        .set("hosts", step.hosts)
        .set("step_s", step.seconds)
        .set("samples_per_s", step.samples_per_second)
        .set("efficiency", report.efficiency(step))
        .set("sums_s", step.sums)
        .set("hidden_share", step.hidden_share())
        .set("stragglers_s", step.stragglers)
        .set("bound_by", name_of(step.bound_by()))
        .set("critical_s", std::move(critical))
        .set("device_bytes", step.device_bytes);
    if (report.faults.between > 0) row.set("faults", goodput_json(report.faults, step.devices));
    rows.push(std::move(row));
  }
  return JsonValue::object()
      .set("workload", report.work.name)
      .set("machine", report.cluster.name)
      .set("slowness", report.training.slowness)
      .set("rows", std::move(rows));
}

std::string explain(const SimulationReport& report, const SimulatedStep& step) {
  std::string text =
      cat("A step of ", step.devices, step.devices == 1 ? " device" : " devices", " of ",
          report.cluster.name, " takes ", in_milliseconds(step.seconds), ".\n");
  for (int r = 0; r < kStepRunners; ++r) {
    const double seconds = step.critical[at(r)];
    if (seconds <= 0) continue;
    const auto runner = static_cast<StepRunner>(r);
    const std::vector<const StepPiece*> pieces = critical_pieces(step, runner);
    text += cat("For ", in_milliseconds(seconds), " (", percent(seconds / step.seconds), ") it ",
                words_for(runner), "; the longest such piece is \"", pieces.front()->name, "\", ",
                in_milliseconds(pieces.front()->ends - pieces.front()->begins), ".\n");
  }
  if (step.stragglers > 0)
    text += cat("Of the arithmetic, ", in_milliseconds(step.stragglers),
                " are for the slowest device, which all others wait for.\n");
  if (step.sums > 0)
    text += cat("Sums of gradients take ", in_milliseconds(step.sums), ", and ",
                percent(step.hidden_share()), " of that is hidden by arithmetic.\n");
  return text;
}

JsonValue step_trace(const SimulatedStep& step) {
  JsonValue events = JsonValue::array();
  for (int runner = 0; runner < kStepRunners; ++runner)
    events.push(JsonValue::object()
                    .set("name", "thread_name")
                    .set("ph", "M")
                    .set("pid", 0)
                    .set("tid", runner)
                    .set("args", JsonValue::object().set(
                                     "name", name_of(static_cast<StepRunner>(runner)))));
  for (const StepPiece& piece : step.pieces)
    events.push(JsonValue::object()
                    .set("name", piece.name)
                    .set("ph", "X")
                    .set("pid", 0)
                    .set("tid", static_cast<int>(piece.runner))
                    .set("ts", piece.begins * 1e6)
                    .set("dur", (piece.ends - piece.begins) * 1e6)
                    .set("args", JsonValue::object().set("critical", piece.critical)));
  return JsonValue::object().set("traceEvents", std::move(events)).set("displayTimeUnit", "ms");
}

std::string plot_commands(const SimulationReport& report) {
  const SimulatedStep& first = report.steps.front();
  std::string data;
  for (const SimulatedStep& step : report.steps)
    data += cat(step.devices, "\t", step.samples_per_second, "\t",
                first.samples_per_second / first.devices * step.devices, "\n");
  return cat(gnuplot_data("$steps", data), "set title ",
             gnuplot_string(cat(report.work.name, " on ", report.cluster.name)),
             "\nset key left top\nset grid\nset logscale xy 2\nset xlabel 'devices'\nset ylabel ",
             gnuplot_string(report.work.sample + "s/s"),
             "\nplot $steps using 1:2 with linespoints title 'simulated', $steps using 1:3 with "
             "lines dashtype 2 title 'perfect scaling'\n");
}

}  // namespace belfry
