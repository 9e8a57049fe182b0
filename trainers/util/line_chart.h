// Charts of what changes over the steps of runs, as SVG.
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
  double y = 0;  // what is not finite becomes a cross at the upper edge
};

struct ChartLine {
  // Faint lines lie below all others; a dotted one has a mark at each point.
  enum class Look { kFaint, kPlain, kDotted };
  std::size_t name = 0;  // which of LineChart::names, and of the colours
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
  std::vector<std::string> names;  // of the legend, each with its colour
  // The meaning of each look. A look that no line has is left out.
  std::vector<std::pair<ChartLine::Look, std::string>> looks;
  std::vector<ChartPanel> panels;  // one below the other; they share the axis of x
};

// A whole document. Lines are thinned to what can be seen: the first, least, greatest and last
// point of each column of pixels. What is no printable ASCII in a text becomes '?'. Throws
// InvalidArgument for no panel, and for a panel without points.
std::string line_chart_svg(const LineChart& chart);

// The points that are seen along this axis: the first, the least, the greatest and the last of each
// column of pixels, and one that is not finite. `points` are in order of x.
std::vector<ChartPoint> thinned(std::span<const ChartPoint> points, const Axis& x);

}  // namespace belfry
