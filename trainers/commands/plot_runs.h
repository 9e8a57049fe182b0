// Draws metrics of runs (`belfry plot`).
#pragma once
#include <optional>
#include <span>
#include <string>

#include "belfry/trainers/runs/run_stats.h"

namespace belfry {

// What `belfry plot` draws by default.
inline const std::vector<std::string> kPlottedMetrics = {"loss", "examples_per_second"};

struct PlotOptions {
  // Whether axes are logarithmic. By default an axis is logarithmic if all values of its metric are
  // positive and one is more than 30 times another.
  std::optional<bool> logarithmic = {};
};

struct RunsPlot {
  std::string commands;  // of gnuplot
  int width = 0, height = 0;
};

// The metrics of the runs by step, one below the other, in training and validation. All runs have
// the same metrics. If there are many steps, neighbours are drawn as their mean within a band from
// the least to the greatest. Throws InvalidArgument if no run has a step.
RunsPlot plot_runs(std::span<const RunStats> runs, const PlotOptions& options = {});

}  // namespace belfry
