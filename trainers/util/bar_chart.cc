#include "belfry/trainers/util/bar_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/axis.h"
#include "belfry/trainers/util/svg.h"

namespace belfry {
namespace {

// In pixels.
constexpr int kCharacter = 7, kTop = 48, kRow = 34, kBar = 20, kPlot = 520, kRight = 110;

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string bar_at(const Bar& bar, double left, double top, double scale) {
  const double end = left + bar.value * scale, middle = top + kBar / 2.0;
  std::string parts = svg::text(left - 8, middle + 4, "end", bar.label);
  parts += cat("  <rect x=\"", svg::pixels(left), "\" y=\"", svg::pixels(top), "\" width=\"",
               svg::pixels(end - left), "\" height=\"", kBar, "\" fill=\"#4878a8\"/>\n");
  double right = end;
  if (bar.error > 0) {
    const double low = std::max(left, end - bar.error * scale);
    right = end + bar.error * scale;
    parts += svg::line(low, middle, right, middle, "black") +
             svg::line(low, middle - 5, low, middle + 5, "black") +
             svg::line(right, middle - 5, right, middle + 5, "black");
  }
  return parts + svg::text(right + 6, middle + 4, "start", number(bar.value));
}

}  // namespace

std::string bar_chart_svg(const BarChart& chart, std::span<const Bar> bars) {
  require(!bars.empty(), "a bar chart needs bars");
  double most = 0;
  std::size_t longest = 0;
  for (const Bar& bar : bars) {
    require(
        std::isfinite(bar.value) && std::isfinite(bar.error) && bar.value >= 0 && bar.error >= 0,
        "bar '", bar.label, "': ", bar.value, " +/- ", bar.error, " cannot be drawn");
    most = std::max(most, bar.value + bar.error);
    longest = std::max(longest, bar.label.size());
  }
  if (most == 0) most = 1;
  const double left = 24 + kCharacter * static_cast<double>(longest), scale = kPlot / most;
  const double bottom = kTop + kRow * static_cast<double>(bars.size());
  std::string parts = svg::text(left, 24, "start", chart.title);
  const double step = round_step(most, 6);
  for (int i = 0; i * step <= most; ++i) {
    const double x = left + i * step * scale;
    parts += svg::line(x, kTop - 8, x, bottom, "#dddddd") +
             svg::text(x, bottom + 16, "middle", number(i * step));
  }
  parts += svg::text(left + kPlot / 2.0, bottom + 36, "middle", chart.unit);
  for (std::size_t i = 0; i < bars.size(); ++i)
    parts += bar_at(bars[i], left, kTop + kRow * static_cast<double>(i), scale);
  return svg::document(left + kPlot + kRight, bottom + 48, parts);
}

}  // namespace belfry
