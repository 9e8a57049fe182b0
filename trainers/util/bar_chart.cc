#include "belfry/trainers/util/bar_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace {

// Pixels.
constexpr int kCharacter = 7, kTop = 48, kRow = 34, kBar = 20, kPlot = 520, kRight = 110;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c < ' ' || c > '~' ? '?' : c;
    }
  }
  return out;
}

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string pixels(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return cat("  <text x=\"", pixels(x), "\" y=\"", pixels(y), "\" text-anchor=\"", anchor, "\">",
             escaped(text), "</text>\n");
}

std::string line(double x1, double y1, double x2, double y2, const char* color) {
  return cat("  <line x1=\"", pixels(x1), "\" y1=\"", pixels(y1), "\" x2=\"", pixels(x2),
             "\" y2=\"", pixels(y2), "\" stroke=\"", color, "\"/>\n");
}

// Between ticks of the axis: 1, 2 or 5 times a power of ten, at most six of them up to `most`.
double tick(double most) {
  double step = std::pow(10, std::floor(std::log10(most / 5)));
  for (const double factor : {2.0, 2.5, 2.0})
    if (most / step > 6) step *= factor;
  return step;
}

std::string bar_at(const Bar& bar, double left, double top, double scale) {
  const double end = left + bar.value * scale, middle = top + kBar / 2.0;
  std::string svg = text_at(left - 8, middle + 4, "end", bar.label);
  svg += cat("  <rect x=\"", pixels(left), "\" y=\"", pixels(top), "\" width=\"",
             pixels(end - left), "\" height=\"", kBar, "\" fill=\"#4878a8\"/>\n");
  double right = end;
  if (bar.error > 0) {
    const double low = std::max(left, end - bar.error * scale);
    right = end + bar.error * scale;
    svg += line(low, middle, right, middle, "black") +
           line(low, middle - 5, low, middle + 5, "black") +
           line(right, middle - 5, right, middle + 5, "black");
  }
  return svg + text_at(right + 6, middle + 4, "start", number(bar.value));
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
  const std::string width = pixels(left + kPlot + kRight), height = pixels(bottom + 48);
  std::string svg = cat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"",
                        height, "\" viewBox=\"0 0 ", width, " ", height,
                        "\" font-family=\"sans-serif\" font-size=\"12\">\n",
                        "  <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  svg += text_at(left, 24, "start", chart.title);
  const double step = tick(most);
  for (int i = 0; i * step <= most; ++i) {
    const double x = left + i * step * scale;
    svg += line(x, kTop - 8, x, bottom, "#dddddd") +
           text_at(x, bottom + 16, "middle", number(i * step));
  }
  svg += text_at(left + kPlot / 2.0, bottom + 36, "middle", chart.unit);
  for (std::size_t i = 0; i < bars.size(); ++i)
    svg += bar_at(bars[i], left, kTop + kRow * static_cast<double>(i), scale);
  return svg + "</svg>\n";
}

}  // namespace belfry
