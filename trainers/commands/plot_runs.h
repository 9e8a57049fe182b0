// Draws the loss and the speed of runs (`belfry plot`).
#pragma once
#include <optional>
#include <span>
#include <string>

#include "belfry/trainers/runs/run_stats.h"
#include "belfry/trainers/util/axis.h"

namespace belfry {

struct PlotOptions {
  std::string metric = "loss";
  // The scale of the metric. Without one it is logarithmic if all values are positive and one is
  // more than 30 times another.
  std::optional<Axis::Scale> scale = {};
};

// An SVG document: the metric by step, in training and validation, and below it the examples per
// second, if any run has them. If there are many steps, it draws each faintly, and the mean of
// neighbours plainly. Throws InvalidArgument if no run has a step.
std::string plot_runs(std::span<const RunStats> runs, const PlotOptions& options = {});

}  // namespace belfry
