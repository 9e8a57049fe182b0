// Charts of values over the steps of runs, as SVG.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "belfry/trainers/util/axis.h"

namespace belfry {

struct ChartPoint {
  double x = 0;  // finite
  double y = 0;  // a value that is not finite becomes a cross at the upper edge
};

struct ChartLine {
  // Faint lines lie below all others; a dotted one has a mark at each point.
  enum class Look { kFaint, kPlain, kDotted };
  std::size_t name = 0;  // index into LineChart::names, and of its colour
  Look look = Look::kPlain;
  std::vector<ChartPoint> points = {};  // x grows
};

// One coordinate system.
struct ChartPanel {
  std::string title;
  Axis::Scale scale = Axis::Scale::kLinear;
  bool from_zero = false;
  std::vector<ChartLine> lines = {};
};

struct LineChart {
  std::string title, x_title;
  std::vector<std::string> names;  // in the legend, each with its colour
  // The meaning of each look. Looks without lines are left out.
  std::vector<std::pair<ChartLine::Look, std::string>> looks;
  std::vector<ChartPanel> panels;  // one below the other, with a common x axis
};

// A whole SVG document. Lines are thinned to the visible points (see thinned()). Characters that
// are not printable ASCII become '?'. Throws InvalidArgument for no panel, and for a panel without
// points.
std::string line_chart_svg(const LineChart& chart);

// The visible points along this axis: the first, the least, the greatest and the last of each
// column of pixels, and one that is not finite. `points` are in order of x.
std::vector<ChartPoint> thinned(std::span<const ChartPoint> points, const Axis& x);

}  // namespace belfry
