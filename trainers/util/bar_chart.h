// Bar charts as SVG, for results of benchmarks.
#pragma once
#include <span>
#include <string>

namespace belfry {

struct Bar {
  std::string label;
  double value = 0;
  double error = 0;  // half the length of the error bar; 0 draws none
};

struct BarChart {
  std::string title;
  std::string unit;  // of the axis, e.g. "images/s"
};

// A whole SVG document: horizontal bars from zero, one below the other, each with its label, its
// value and its error bar, over a labelled axis. Characters that are not printable ASCII become
// '?'. Throws InvalidArgument for no bars, and for values or errors that are negative or not
// finite.
std::string bar_chart_svg(const BarChart& chart, std::span<const Bar> bars);

}  // namespace belfry
