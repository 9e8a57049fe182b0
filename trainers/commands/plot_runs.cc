#include "belfry/trainers/commands/plot_runs.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/gnuplot_text.h"

namespace belfry {
namespace {

constexpr std::size_t kManySteps = 400;  // from so many steps on, neighbours are averaged
constexpr std::size_t kMeans = 200;      // about so many means

// A row per point: step, value, least and greatest value. The last two are of the neighbours that
// the value is the mean of. Values that are not finite are left out.
std::string rows_of(std::span<const StatsPoint> points) {
  const std::size_t count = points.size() < kManySteps ? 1 : points.size() / kMeans;
  std::string rows;
  for (; !points.empty(); points = points.subspan(std::min(count, points.size()))) {
    double sum = 0, finite = 0, least = INFINITY, greatest = -INFINITY;
    const auto some = points.first(std::min(count, points.size()));
    for (const StatsPoint& point : some) {
      if (!std::isfinite(point.value)) continue;
      sum += point.value, ++finite;
      least = std::min(least, point.value), greatest = std::max(greatest, point.value);
    }
    if (finite == 0)
      rows += "\n";  // the line is broken
    else
      rows +=
          cat(some[some.size() / 2].step, "\t", sum / finite, "\t", least, "\t", greatest, "\n");
  }
  return rows;
}

// Whether a linear axis would show the large values alone.
bool needs_log(std::span<const StatsPoint> points, double& least, double& greatest) {
  for (const StatsPoint& point : points) {
    if (!std::isfinite(point.value)) continue;
    if (point.value <= 0) return false;
    least = std::min(least, point.value);
    greatest = std::max(greatest, point.value);
  }
  return true;
}

bool is_speed(const std::string& metric) { return metric == "examples_per_second"; }

bool needs_log(std::span<const RunStats> runs, std::size_t metric) {
  constexpr double kMuch = 30;
  if (is_speed(runs[0].metrics[metric].metric)) return false;
  double least = INFINITY, greatest = 0;
  for (const RunStats& run : runs)
    for (const auto* points : {&run.metrics[metric].training, &run.metrics[metric].validation})
      if (!needs_log(*points, least, greatest)) return false;
  return greatest > kMuch * least;
}

// Draws one metric of all runs.
class Panel {
 public:
  Panel(std::span<const RunStats> runs, std::size_t metric, bool logarithmic)
      : runs_(runs), metric_(metric), logarithmic_(logarithmic) {
    for (std::size_t run = 0; run < runs.size(); ++run) {
      const MetricStats& stats = runs[run].metrics[metric];
      add(run, "training", stats.training);
      add(run, "validation", stats.validation);
    }
  }

  bool empty() const { return plots_.empty(); }
  const std::string& data() const { return data_; }
  std::string commands() const {
    const std::string& name = runs_[0].metrics[metric_].metric;
    return cat("set ylabel ", gnuplot_string(name), "\n", logarithmic_ ? "set" : "unset",
               " logscale y\nset xrange [", first_, ":", last_, "]\nset yrange [", range(name),
               "]\n", labels_, "plot ", join(plots_, ", \\\n     "), "\nunset label\n");
  }

 private:
  // Of a panel without finite values gnuplot cannot find it.
  std::string range(const std::string& name) const {
    if (!has_finite_) return logarithmic_ ? "0.1:1" : "0:1";
    return is_speed(name) && !logarithmic_ ? "0:*" : "*:*";
  }

  void add(std::size_t run, const std::string& part, std::span<const StatsPoint> points) {
    const std::string rows = rows_of(points);
    if (points.empty()) return;
    const std::string block = cat("$", part, "_", metric_, "_", run);
    const std::size_t colour = run + 1;
    const bool finite = rows.find_first_not_of('\n') != rows.npos;
    has_finite_ = has_finite_ || finite;
    first_ = std::min(first_, static_cast<double>(points.front().step));
    last_ = std::max({last_, static_cast<double>(points.back().step), first_ + 1});
    data_ += gnuplot_data(block, finite ? rows : "NaN\tNaN\n");
    if (points.size() >= kManySteps)
      plots_.push_back(cat(block, " using 1:3:4 with filledcurves linecolor ", colour,
                           " fillstyle transparent solid 0.2 noborder notitle"));
    const bool trains = part == "training";
    plots_.push_back(cat(block, " using 1:2 with ",
                         trains ? "lines linewidth 1.5" : "linespoints pointtype 7 pointsize 0.5",
                         " linecolor ", colour, " dashtype ", trains ? colour : 3, " title ",
                         gnuplot_string(cat(runs_[run].name, trains ? "" : ", validation"))));
    mark_nonfinite(points, colour);
  }

  // A cross at the upper edge, where values begin that are not finite.
  void mark_nonfinite(std::span<const StatsPoint> points, std::size_t colour) {
    const auto found = std::ranges::find_if(
        points, [](const StatsPoint& point) { return !std::isfinite(point.value); });
    if (found != points.end())
      labels_ += cat("set label 'not finite' at first ", found->step,
                     ", graph 0.96 point pointtype 2 linecolor ", colour, " offset 1,0\n");
  }

  std::span<const RunStats> runs_;
  const std::size_t metric_;
  const bool logarithmic_;
  double first_ = INFINITY, last_ = 0;  // steps
  bool has_finite_ = false;
  std::string data_, labels_;
  std::vector<std::string> plots_;
};

std::string title_of(std::span<const RunStats> runs) {
  return runs.size() == 1 ? runs[0].name : cat(runs.size(), " runs");
}

}  // namespace

RunsPlot plot_runs(std::span<const RunStats> runs, const PlotOptions& options) {
  constexpr int kWidth = 900, kPanelHeight = 330, kTitleHeight = 40;
  std::vector<Panel> panels;
  for (std::size_t metric = 0; !runs.empty() && metric < runs[0].metrics.size(); ++metric) {
    Panel panel(runs, metric, options.logarithmic.value_or(needs_log(runs, metric)));
    if (!panel.empty()) panels.push_back(std::move(panel));
  }
  require(!panels.empty(), "there is no step to draw: ",
          runs.size() == 1 ? "the run has none yet" : "the runs have none yet");
  std::string commands;
  for (const Panel& panel : panels) commands += panel.data();
  commands += cat(
      "set datafile separator tab\nset colorsequence podo\nset grid\nset xlabel 'step' offset "
      "0,0.6\n",
      "set format x '%.12g'\nset format y '%.4g'\nset key outside bottom center horizontal\n",
      "set multiplot layout ", panels.size(), ",1 title ", gnuplot_string(title_of(runs)), "\n");
  for (const Panel& panel : panels) commands += panel.commands();
  return {commands + "unset multiplot\n", kWidth,
          kTitleHeight + kPanelHeight * static_cast<int>(panels.size())};
}

}  // namespace belfry
