#include "belfry/trainers/util/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {

double median(std::span<const double> values) {
  require(!values.empty(), "no values have no median");
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

PairedRatio paired_ratio(std::span<const double> a, std::span<const double> b) {
  require(a.size() == b.size() && !a.empty(), "ratios of ", a.size(), " and ", b.size(),
          " measurements");
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  const auto [least, most] = std::ranges::minmax(ratios);
  return {.median = median(ratios), .spread = most - least};
}

std::string significant(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.4g", std::isnan(value) ? std::abs(value) : value);
  return text;
}

std::string duration_text(double seconds) {
  constexpr double kMost = 999 * 86400.0;
  const std::lldiv_t minutes = std::lldiv(std::llround(std::clamp(seconds, 0.0, kMost)), 60);
  const std::lldiv_t hours = std::lldiv(minutes.quot, 60), days = std::lldiv(hours.quot, 24);
  const auto two = [](std::int64_t n) { return cat(n < 10 ? "0" : "", n); };
  if (days.quot > 0) return cat(days.quot, "d ", two(days.rem), ":", two(hours.rem));
  if (hours.quot > 0) return cat(hours.quot, ":", two(hours.rem), ":", two(minutes.rem));
  return cat(minutes.quot, ":", two(minutes.rem));
}

std::string rounded(double value, int digits) {
  char text[400];  // the largest double has 309 digits before the point
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string padded(std::string text, int width) {
  const auto least = static_cast<std::size_t>(std::abs(width));
  if (text.size() < least) text.insert(width < 0 ? text.size() : 0, least - text.size(), ' ');
  return text;
}

}  // namespace belfry
