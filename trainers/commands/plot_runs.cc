#include "belfry/trainers/commands/plot_runs.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/line_chart.h"

namespace belfry {
namespace {

using Look = ChartLine::Look;

constexpr std::size_t kManySteps = 400;  // from so many steps on, neighbours are averaged
constexpr std::size_t kMeans = 120;      // about so many means

std::vector<ChartPoint> points_of(std::span<const StatsPoint> stats) {
  std::vector<ChartPoint> points;
  points.reserve(stats.size());
  for (const StatsPoint& point : stats)
    points.push_back({static_cast<double>(point.step), point.value});
  return points;
}

// The mean of the finite ones of each `count` neighbours, at their middle.
std::vector<ChartPoint> means_of(std::span<const ChartPoint> points, std::size_t count) {
  std::vector<ChartPoint> means;
  for (; !points.empty(); points = points.subspan(std::min(count, points.size()))) {
    const auto some = points.first(std::min(count, points.size()));
    double sum = 0, finite = 0;
    for (const ChartPoint& point : some)
      if (std::isfinite(point.y)) sum += point.y, ++finite;
    if (finite > 0) means.push_back({(some.front().x + some.back().x) / 2, sum / finite});
  }
  return means;
}

void add_steps(std::span<const StatsPoint> stats, std::size_t name, ChartPanel& panel) {
  if (stats.empty()) return;
  std::vector<ChartPoint> points = points_of(stats);
  if (points.size() < kManySteps) {
    panel.lines.push_back({name, Look::kPlain, std::move(points)});
    return;
  }
  panel.lines.push_back({name, Look::kPlain, means_of(points, points.size() / kMeans)});
  panel.lines.push_back({name, Look::kFaint, std::move(points)});
}

// Whether a linear axis would show the large values alone.
bool needs_log(const ChartPanel& panel) {
  constexpr double kMuch = 30;
  double least = 1e300, most = 0;
  for (const ChartLine& line : panel.lines)
    for (const ChartPoint& point : line.points) {
      if (!std::isfinite(point.y)) continue;
      if (point.y <= 0) return false;
      least = std::min(least, point.y);
      most = std::max(most, point.y);
    }
  return most > kMuch * least;
}

ChartPanel metric_panel(std::span<const RunStats> runs, const PlotOptions& options) {
  ChartPanel panel{.title = options.metric};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    add_steps(runs[i].training, i, panel);
    if (!runs[i].validation.empty())
      panel.lines.push_back({i, Look::kDotted, points_of(runs[i].validation)});
  }
  const Axis::Scale found = needs_log(panel) ? Axis::Scale::kLog : Axis::Scale::kLinear;
  panel.scale = options.scale.value_or(found);
  if (panel.scale == Axis::Scale::kLog) panel.title += " (logarithmic)";
  return panel;
}

ChartPanel speed_panel(std::span<const RunStats> runs) {
  ChartPanel panel{.title = "examples per second", .from_zero = true};
  for (std::size_t i = 0; i < runs.size(); ++i) add_steps(runs[i].speed, i, panel);
  return panel;
}

bool has_means(std::span<const RunStats> runs) {
  return std::ranges::any_of(runs,
                             [](const RunStats& run) { return run.training.size() >= kManySteps; });
}

std::string title_of(std::span<const RunStats> runs, const std::string& metric) {
  return runs.size() == 1 ? cat(metric, " of ", runs[0].name)
                          : cat(metric, " of ", runs.size(), " runs");
}

}  // namespace

std::string plot_runs(std::span<const RunStats> runs, const PlotOptions& options) {
  LineChart chart{.title = title_of(runs, options.metric),
                  .x_title = "step",
                  .names = {},
                  .looks = {{Look::kFaint, "training, each step"},
                            {Look::kPlain, has_means(runs) ? "training, mean" : "training"},
                            {Look::kDotted, "validation"}},
                  .panels = {}};
  for (const RunStats& run : runs) chart.names.push_back(run.name);
  for (ChartPanel& panel : std::vector{metric_panel(runs, options), speed_panel(runs)})
    if (!panel.lines.empty()) chart.panels.push_back(std::move(panel));
  require(!chart.panels.empty(), "there is no step to draw: ",
          runs.size() == 1 ? "the run has none yet" : "the runs have none yet");
  return line_chart_svg(chart);
}

}  // namespace belfry
