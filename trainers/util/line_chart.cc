#include "belfry/trainers/util/line_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/svg.h"

namespace belfry {
namespace {

using Look = ChartLine::Look;

// In pixels.
constexpr double kLeft = 76, kWidth = 760, kRight = 34, kTitleAt = 30, kLegendTop = 54;
constexpr double kLegendRow = 20, kSwatch = 22, kGlyph = 6.6, kLegendGap = 24;
constexpr double kPanel = 250, kGap = 56, kBelow = 50;
constexpr double kCross = 3.5, kMark = 2.6;
constexpr double kXTicks = 10;
constexpr int kYTicks = 6;
constexpr char kGrid[] = "#e4e4e4", kFrame[] = "#999999";
constexpr std::size_t kFewPoints = 40;  // lines with fewer points get a mark at each

constexpr std::array kColors = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e",
                                "#17a2b8", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22"};

const char* color_of(std::size_t name) { return kColors[name % kColors.size()]; }

struct Range {
  double least = std::numeric_limits<double>::infinity(), most = -least;

  void add(double value) {
    if (!std::isfinite(value)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  bool empty() const { return least > most; }
};

Axis x_axis(const LineChart& chart) {
  Range range;
  for (const ChartPanel& panel : chart.panels)
    for (const ChartLine& line : panel.lines)
      for (const ChartPoint& point : line.points) range.add(point.x);
  constexpr double kNearZero = 0.2;  // the empty share of the axis allowed before the first step
  if (range.least > 0 && range.least <= std::max(1.0, kNearZero * range.most)) range.least = 0;
  return {range.least, range.most, Axis::Scale::kLinear, kLeft, kLeft + kWidth};
}

// The y axis of a panel, with room above and below the lines.
Axis y_axis(const ChartPanel& panel, double top) {
  const bool is_log = panel.scale == Axis::Scale::kLog;
  Range range;
  for (const ChartLine& line : panel.lines)
    for (const ChartPoint& point : line.points)
      if (!is_log || point.y > 0) range.add(point.y);
  if (range.empty()) range = {.least = is_log ? 0.1 : 0, .most = 1};
  const double bottom = top + kPanel;
  constexpr double kRoom = 0.05;
  if (is_log) {
    const double room = std::pow(range.most / range.least, kRoom);
    return {range.least / room, range.most * room, Axis::Scale::kLog, bottom, top};
  }
  constexpr double kNearZero = 0.3;
  const bool to_zero =
      panel.from_zero || (range.least >= 0 && range.least <= kNearZero * range.most);
  if (to_zero) range.least = std::min(range.least, 0.0);
  if (range.least == 0 && range.most == 0) range.most = 1;
  const double room = kRoom * (range.most - range.least);
  return {range.least - (to_zero && range.least >= 0 ? 0 : room), range.most + room,
          Axis::Scale::kLinear, bottom, top};
}

std::string circle(double x, double y, const char* color, const char* fill) {
  return cat("  <circle cx=\"", svg::pixels(x), "\" cy=\"", svg::pixels(y), "\" r=\"", kMark,
             "\" fill=\"", fill, "\" stroke=\"", color, "\" stroke-width=\"1.4\"/>\n");
}

std::string cross(double x, double y, const char* color) {
  return svg::line(x - kCross, y - kCross, x + kCross, y + kCross, color) +
         svg::line(x - kCross, y + kCross, x + kCross, y - kCross, color);
}

std::string_view strokes_of(Look look) {
  switch (look) {
    case Look::kFaint: return "stroke-width=\"1\" stroke-opacity=\"0.3\"";
    case Look::kPlain: return "stroke-width=\"1.6\"";
    case Look::kDotted: return "stroke-width=\"1.4\" stroke-dasharray=\"5 3\"";
  }
  return "";
}

// The lines of one panel, between its axes.
class Drawing {
 public:
  Drawing(const Axis& x, const Axis& y, double top) : x_(x), y_(y), top_(top) {}

  std::string draw(const ChartLine& line) const {
    const std::vector<ChartPoint> points = thinned(line.points, x_);
    const char* const color = color_of(line.name);
    std::string parts = path_of(points, color, line.look);
    const bool marks = line.look != Look::kFaint && points.size() <= kFewPoints;
    for (const ChartPoint& point : points)
      if (std::isfinite(point.y) && (marks || line.look == Look::kDotted))
        parts += circle(x_.at(point.x), y_.at(point.y), color,
                        line.look == Look::kDotted ? "white" : color);
    return parts + crosses_of(points, color);
  }

 private:
  // Crosses at values that are not finite, with room between them.
  std::string crosses_of(std::span<const ChartPoint> points, const char* color) const {
    std::string parts;
    double free = 0;  // the end of the last cross
    for (const ChartPoint& point : points) {
      const double x = x_.at(point.x);
      if (std::isfinite(point.y) || x < free) continue;
      parts += cross(x, top_ + kCross + 2, color);
      free = x + 4 * kCross;
    }
    return parts;
  }

  // The path of a line. It has gaps at values that are not finite.
  std::string path_of(std::span<const ChartPoint> points, const char* color, Look look) const {
    std::string steps;
    bool is_open = false;
    for (const ChartPoint& point : points) {
      const bool finite = std::isfinite(point.y);
      if (finite)
        steps +=
            cat(is_open ? "L" : "M", svg::pixels(x_.at(point.x)), " ", svg::pixels(y_.at(point.y)));
      is_open = finite;
    }
    if (steps.empty()) return "";
    return cat("  <path d=\"", steps, "\" fill=\"none\" stroke=\"", color, "\" ", strokes_of(look),
               " stroke-linejoin=\"round\" stroke-linecap=\"round\"/>\n");
  }

  const Axis &x_, &y_;
  double top_;
};

std::string grid(const Axis& x, const Axis& y, double top) {
  const double bottom = top + kPanel, right = kLeft + kWidth;
  std::string parts;
  const int steps = static_cast<int>(std::clamp(x.length(), 1.0, kXTicks));  // ticks at whole steps
  for (const auto& [value, text] : x.ticks(steps))
    parts += svg::line(x.at(value), top, x.at(value), bottom, kGrid) +
             svg::text(x.at(value), bottom + 16, "middle", text);
  for (const auto& [value, text] : y.ticks(kYTicks))
    parts += svg::line(kLeft, y.at(value), right, y.at(value), kGrid) +
             svg::text(kLeft - 8, y.at(value) + 4, "end", text);
  return parts + svg::line(kLeft, bottom, right, bottom, kFrame) +
         svg::line(kLeft, top, kLeft, bottom, kFrame);
}

std::string panel_at(const ChartPanel& panel, const Axis& x, double top) {
  const Axis y = y_axis(panel, top);
  const Drawing drawing(x, y, top);
  std::string parts = svg::text(kLeft, top - 8, "start", panel.title) + grid(x, y, top);
  for (const Look look : {Look::kFaint, Look::kPlain, Look::kDotted})
    for (const ChartLine& line : panel.lines)
      if (line.look == look) parts += drawing.draw(line);
  return parts;
}

// A legend: entries from left to right, in as many rows as they need.
class Legend {
 public:
  // `sign` draws the sign in front of the text, from its left end and its middle.
  template <class Sign>
  void add(std::string_view text, const Sign& sign) {
    const double width = kSwatch + kGlyph * static_cast<double>(text.size());
    if (x_ > kLeft && x_ + width > kLeft + kWidth) {
      x_ = kLeft;
      y_ += kLegendRow;
    }
    parts_ += sign(x_, y_ - 4) + svg::text(x_ + kSwatch, y_, "start", text);
    x_ += width + kLegendGap;
  }
  const std::string& parts() const { return parts_; }
  double bottom() const { return y_; }

 private:
  double x_ = kLeft, y_ = kLegendTop;
  std::string parts_;
};

bool any_line(const LineChart& chart, const auto& is_wanted) {
  return std::ranges::any_of(chart.panels, [&](const ChartPanel& panel) {
    return std::ranges::any_of(panel.lines, is_wanted);
  });
}

std::string look_sign(double x, double y, Look look) {
  const double end = x + kSwatch - 6;
  return cat("  <path d=\"M", svg::pixels(x), " ", svg::pixels(y), "L", svg::pixels(end), " ",
             svg::pixels(y), "\" stroke=\"black\" ", strokes_of(look), "/>\n",
             look == Look::kDotted ? circle((x + end) / 2, y, "black", "white") : "");
}

Legend legend_of(const LineChart& chart) {
  Legend legend;
  for (std::size_t i = 0; i < chart.names.size(); ++i)
    legend.add(chart.names[i], [&](double x, double y) {
      return cat("  <rect x=\"", svg::pixels(x), "\" y=\"", svg::pixels(y - 4),
                 "\" width=\"16\" height=\"8\" fill=\"", color_of(i), "\"/>\n");
    });
  for (const auto& [look, text] : chart.looks)
    if (any_line(chart, [&](const ChartLine& line) { return line.look == look; }))
      legend.add(text, [&](double x, double y) { return look_sign(x, y, look); });
  const auto has_hole = [](const ChartLine& line) {
    return std::ranges::any_of(line.points, [](auto& point) { return !std::isfinite(point.y); });
  };
  if (any_line(chart, has_hole))
    legend.add("not finite", [](double x, double y) { return cross(x + 8, y, "black"); });
  return legend;
}

// Adds the points of one column of pixels, in their order.
void add_column(std::span<const ChartPoint> column, std::vector<ChartPoint>& to) {
  constexpr std::size_t kMost = 4;
  if (column.size() <= kMost) {
    to.insert(to.end(), column.begin(), column.end());
    return;
  }
  std::size_t least = 0, most = 0;
  std::vector<std::size_t> kept = {0, column.size() - 1};
  for (std::size_t i = 0; i < column.size(); ++i) {
    if (column[i].y < column[least].y || std::isnan(column[least].y)) least = i;
    if (column[i].y > column[most].y || std::isnan(column[most].y)) most = i;
  }
  kept.insert(kept.end(), {least, most});
  const auto hole = std::ranges::find_if(column, [](auto& p) { return !std::isfinite(p.y); });
  if (hole != column.end()) kept.push_back(static_cast<std::size_t>(hole - column.begin()));
  std::ranges::sort(kept);
  const auto twice = std::ranges::unique(kept);
  kept.erase(twice.begin(), twice.end());
  for (const std::size_t i : kept) to.push_back(column[i]);
}

}  // namespace

std::vector<ChartPoint> thinned(std::span<const ChartPoint> points, const Axis& x) {
  std::vector<ChartPoint> result;
  for (std::size_t from = 0, end = 0; from < points.size(); from = end) {
    const double column = std::floor(x.at(points[from].x));
    while (end < points.size() && std::floor(x.at(points[end].x)) == column) ++end;
    add_column(points.subspan(from, end - from), result);
  }
  return result;
}

std::string line_chart_svg(const LineChart& chart) {
  require(!chart.panels.empty(), "a chart needs a panel");
  for (const ChartPanel& panel : chart.panels)
    require(std::ranges::any_of(panel.lines, [](auto& line) { return !line.points.empty(); }),
            "there is nothing to draw in '", panel.title, "'");
  const Axis x = x_axis(chart);
  const Legend legend = legend_of(chart);
  std::string parts =
      cat("  <g font-size=\"16\" font-weight=\"bold\">\n",
          svg::text(kLeft, kTitleAt, "start", chart.title), "  </g>\n", legend.parts());
  double top = legend.bottom() + 36;
  for (const ChartPanel& panel : chart.panels) {
    parts += panel_at(panel, x, top);
    top += kPanel + kGap;
  }
  const double bottom = top - kGap;
  parts += svg::text(kLeft + kWidth / 2, bottom + 36, "middle", chart.x_title);
  return svg::document(kLeft + kWidth + kRight, bottom + kBelow, parts);
}

}  // namespace belfry
